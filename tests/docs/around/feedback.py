"""A call that ended, and a thumb for it."""

import ragtrace

ragtrace.instrument(service_name="support-bot")
with ragtrace.rag(question="How long do refunds take?") as call:
    with ragtrace.retrieval() as retrieval:
        retrieval.set_chunks(["Refunds take 14 days."])
    call.answer = "Refunds take 30 days."

# the block

assert ragtrace.statistics().feedback_recorded == 1
