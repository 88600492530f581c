"""Code of one's own: three helpers say what a RAG call is made of."""

import sys

import ragtrace

ragtrace.instrument(service_name="support-bot")


def retrieve(question: str) -> list[ragtrace.Chunk]:
    with ragtrace.retrieval(query=question, data_source="faq") as retrieval:
        chunks = [ragtrace.Chunk(id="faq-12", text="Refunds take 14 days.", score=0.93)]
        retrieval.set_chunks(chunks)
        return chunks


@ragtrace.rag
def answer(question: str) -> str:
    messages = [{"role": "user", "content": f"{retrieve(question)[0].text}\n\n{question}"}]
    with ragtrace.generation(model="my-model", messages=messages) as generation:
        text = "Refunds take 30 days."
        generation.set_answer(text)
        return text


print(answer(sys.argv[1]))
