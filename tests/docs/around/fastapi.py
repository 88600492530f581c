"""The route, asked once."""

# the block

from fastapi.testclient import TestClient

ragtrace.instrument(service_name="support-bot")
assert (
    TestClient(app).post("/ask", json={"question": "How long do refunds take?"}).text
    == "Refunds take 14 days."
)
