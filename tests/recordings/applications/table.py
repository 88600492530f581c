"""The applications that are recorded: the examples, and some that do what traces are hard to read for."""

from __future__ import annotations

from collections.abc import Callable

from tests.recordings.applications.application import Application
from tests.recordings.applications.by_hand import (
    anthropic,
    anthropic_async,
    anthropic_streaming,
    anthropic_tools,
    chroma,
    openai_abandoned,
    openai_async,
    openai_chat,
    openai_choices,
    openai_closed,
    openai_responses,
    openai_streaming,
    openai_talk,
    openai_tools,
    qdrant,
)
from tests.recordings.applications.decorated import (
    langfuse_decorated,
    mlflow_decorated,
    openinference_decorated,
    openinference_evaluated,
    traceloop_decorated,
)
from tests.recordings.applications.negatives import NEGATIVES
from tests.recordings.applications.on_bedrock import bedrock
from tests.recordings.applications.on_dspy import dspy
from tests.recordings.applications.on_haystack import (
    haystack,
    haystack_hybrid,
)
from tests.recordings.applications.on_langchain import (
    langchain,
    langchain_agent,
    langchain_async,
    langchain_ensemble,
    langchain_faiss,
    langchain_forty,
    langchain_history,
    langchain_streaming,
    langfuse_langchain,
)
from tests.recordings.applications.on_llamaindex import (
    llamaindex,
    llamaindex_agent,
    llamaindex_async,
    llamaindex_chat,
    llamaindex_fusion,
    llamaindex_many,
    llamaindex_reranker,
    llamaindex_streaming,
)
from tests.recordings.applications.on_openai_agents import openai_agents, openai_agents_streaming
from tests.recordings.applications.on_pydantic_ai import (
    pydantic_ai,
    pydantic_ai_streaming,
    pydantic_ai_two_hops,
)
from tests.recordings.applications.streams import STREAMS
from tests.recordings.applications.two_services import two_services

__all__ = ["APPLICATIONS"]

APPLICATIONS: dict[str, Callable[[], Application]] = {
    **NEGATIVES,
    **STREAMS,
}
APPLICATIONS |= {
    made.__name__.replace("_", "-"): made
    for made in (
        anthropic,
        anthropic_async,
        anthropic_streaming,
        anthropic_tools,
        bedrock,
        chroma,
        dspy,
        haystack,
        haystack_hybrid,
        langchain,
        langchain_agent,
        langchain_async,
        langchain_ensemble,
        langchain_faiss,
        langchain_forty,
        langchain_history,
        langchain_streaming,
        langfuse_decorated,
        langfuse_langchain,
        llamaindex,
        llamaindex_agent,
        llamaindex_async,
        llamaindex_chat,
        llamaindex_fusion,
        llamaindex_many,
        llamaindex_reranker,
        llamaindex_streaming,
        mlflow_decorated,
        openai_abandoned,
        openai_agents,
        openai_agents_streaming,
        openai_async,
        openai_chat,
        openai_choices,
        openai_closed,
        openai_responses,
        openai_streaming,
        openai_talk,
        openai_tools,
        openinference_decorated,
        openinference_evaluated,
        pydantic_ai,
        pydantic_ai_streaming,
        pydantic_ai_two_hops,
        qdrant,
        traceloop_decorated,
        two_services,
    )
}
