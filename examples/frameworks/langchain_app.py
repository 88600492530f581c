"""LangChain: a retriever, a prompt and a chat model in one chain.

    python examples/frameworks/langchain_app.py "How long does the warranty last?"

The one line captures the chain with its retriever and its model.
"""

import functools
import sys

from corpus import CHUNKS
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

import ragtrace

PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer from these passages of our handbook only.\n\n{context}"),
        ("human", "{question}"),
    ]
)


def ask(question: str) -> str:
    return chain().invoke(question)


@functools.cache
def chain() -> Runnable[str, str]:
    found = {"context": retriever() | in_one_text, "question": RunnablePassthrough()}
    return found | PROMPT | ChatOpenAI(model="gpt-4.1-mini") | StrOutputParser()


@functools.cache
def retriever() -> BaseRetriever:
    # Without the check, texts are sent as they are: no tokenizer is downloaded.
    store = InMemoryVectorStore(
        OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)
    )
    store.add_documents([Document(id=name, page_content=text) for name, text in CHUNKS.items()])
    return store.as_retriever(search_kwargs={"k": 3})


def in_one_text(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


if __name__ == "__main__":
    ragtrace.instrument(service_name="langchain-app")
    print(ask(" ".join(sys.argv[1:]) or "How long does the warranty last?"))
