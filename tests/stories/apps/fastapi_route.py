"""A route of FastAPI that streams its answer: one decorator below the route's own."""

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import ragtrace

ragtrace.instrument(service_name="support-bot")
app = FastAPI()


class Ask(BaseModel):
    question: str


@ragtrace.retrieval(data_source="faq")
def search(query: str) -> list[str]:
    return ["Refunds take 14 days."]


@app.post("/ask")
@ragtrace.rag(name="support")
def ask(body: Ask) -> StreamingResponse:
    search(body.question)
    return StreamingResponse(iter(["Refunds take ", "30 days."]), media_type="text/plain")
