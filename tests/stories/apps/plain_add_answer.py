"""Code of one's own that streams: each piece is told as it comes."""

import sys

import ragtrace

ragtrace.instrument(service_name="support-bot")

question = sys.argv[1]
with ragtrace.rag(question=question, name="support") as call:
    with ragtrace.retrieval(query=question, data_source="faq") as retrieval:
        retrieval.set_chunks([ragtrace.Chunk(id="faq-12", text="Refunds take 14 days.", score=0.93)])
    with ragtrace.generation(model="my-model", prompt=f"Refunds take 14 days.\n\n{question}") as generation:
        for piece in ("Refunds take ", "30 days."):
            generation.add_answer(piece)
            call.add_answer(piece)
            print(piece, end="", flush=True)
print()
