"""Applications on pydantic-ai."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from tests.recordings.applications.application import SESSION, TWO_QUESTIONS, Application, parts, union

__all__ = ["pydantic_ai", "pydantic_ai_streaming", "pydantic_ai_two_hops"]


def pydantic_ai() -> Application:
    return _agent("What does the warranty cover?")


def pydantic_ai_two_hops() -> Application:
    """The agent calls its tool twice, in a conversation that has an id."""
    app = import_module("pydantic_ai_app")

    def ask(question: str) -> str:
        return str(app.agent().run_sync(question, conversation_id=SESSION).output)

    return replace(_agent(TWO_QUESTIONS), ask=ask, session_id=SESSION)


def pydantic_ai_streaming() -> Application:
    app = import_module("pydantic_ai_app")

    def ask(question: str) -> str:
        return "".join(app.agent().run_stream_sync(question).stream_text(delta=True))

    return replace(pydantic_ai(), ask=ask)


def _agent(question: str) -> Application:
    app = import_module("pydantic_ai_app")

    def prepare() -> None:
        app.agent()
        app.index()

    return Application(
        question=question,
        prepare=prepare,
        ask=app.ask,
        chunks=lambda asked: union(app.retrieve(part) for part in parts(asked)),
    )
