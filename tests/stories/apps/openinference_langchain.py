"""A chain of LangChain that OpenInference traces, as its own guide has it. No line of ragtrace."""

import sys

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
LangChainInstrumentor().instrument(tracer_provider=provider)

store = InMemoryVectorStore(
    OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)
)
store.add_documents(
    [
        Document(id="warranty-length", page_content="The warranty on every lamp lasts 24 months."),
        Document(id="shipping-cost", page_content="Shipping costs 4 euros."),
    ]
)


def in_one_text(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


prompt = ChatPromptTemplate.from_messages(
    [("system", "Answer from these passages only.\n\n{context}"), ("human", "{question}")]
)
found = {"context": store.as_retriever() | in_one_text, "question": RunnablePassthrough()}
chain = found | prompt | ChatOpenAI(model="gpt-4.1-mini") | StrOutputParser()

print(chain.invoke(sys.argv[1]))
