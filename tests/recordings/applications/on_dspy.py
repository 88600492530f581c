"""Applications on DSPy."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import MODEL, Application, plain_search

__all__ = ["dspy"]


def dspy() -> Application:
    """A module that retrieves and predicts."""
    return Application(
        question="How long does the warranty last?",
        prepare=_prepare,
        ask=lambda question: str(_module()(question=question).answer),
        chunks=plain_search,
    )


def _prepare() -> None:
    import_module("handbook").index()
    _module()


@functools.cache
def _module() -> Any:
    import dspy as library

    library.configure(lm=library.LM(f"openai/{MODEL}", cache=False))

    class Handbook(library.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.respond = library.Predict("context, question -> answer")

        def forward(self, question: str) -> Any:
            context = [found["text"] for found in plain_search(question)]
            return self.respond(context=context, question=question)

    return Handbook()
