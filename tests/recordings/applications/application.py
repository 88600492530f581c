"""What is known of an application that is recorded, and what several of them do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = [
    "FOLLOW_UP",
    "HISTORY",
    "MODEL",
    "SESSION",
    "TWO_QUESTIONS",
    "Application",
    "Json",
    "chunk",
    "complete",
    "parts",
    "plain",
    "plain_search",
    "union",
]

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "frameworks"))

Json = dict[str, Any]
MODEL = "gpt-4.1-mini"
TWO_QUESTIONS = "How long does the warranty last, and who pays for the shipping of a return?"
HISTORY = ("How long does the warranty on a lamp last?", "The warranty on every lamp lasts 24 months.")
FOLLOW_UP = "What does it cover?"
SESSION = "session-7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application, and the truth about what it does, which its own objects tell."""

    question: str
    prepare: Callable[[], object]
    """Builds the index. What it does is not recorded."""
    ask: Callable[[str], str]
    chunks: Callable[[str], list[Json]]
    """Returns what the model got for a question, in order. Called when recording is over."""
    model: str = MODEL
    session_id: str | None = None
    is_rooted: bool = True
    """Whether its framework makes one span around all others. Without, the recorder makes one, as a web
    framework does around a request; ragtrace needs none."""


def plain(ask: Callable[[str], str], *, session_id: str | None = None, is_rooted: bool = True) -> Application:
    """Make an application of a function that asks OpenAI about what a plain function found."""
    handbook = import_module("handbook")
    return Application(
        question="How long does the warranty last?",
        prepare=handbook.index,
        ask=ask,
        chunks=plain_search,
        session_id=session_id,
        is_rooted=is_rooted,
    )


def plain_search(question: str) -> list[Json]:
    """Find the three chunks that are nearest to the question."""
    handbook = import_module("handbook")
    return [chunk(found.id, found.text, found.score) for found in handbook.search(question)]


def complete(question: str, chunks: list[Json], client: Any = None, n: int = 1) -> str:
    """Ask OpenAI a question about the chunks."""
    from openai import OpenAI

    passages = "\n".join(each["text"] for each in chunks)
    completion = (client or OpenAI()).chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": f"Answer from these passages only.\n\n{passages}"},
            {"role": "user", "content": question},
        ],
        n=n,
    )
    return str(completion.choices[0].message.content)


def chunk(id_: str, text: str, score: float | None = None) -> Json:
    """Write a chunk as recordings have it."""
    return {"id": id_, "text": text} | ({} if score is None else {"score": score})


def parts(question: str) -> list[str]:
    """Part a question as the model server does that calls the tool for each part."""
    return [f"{part.strip()}?" for part in question.rstrip("?").split(", and ")]


def union(founds: Iterable[list[Json]]) -> list[Json]:
    """Put together what several searches found, each chunk once, where it was found first."""
    chunks: dict[str, Json] = {}
    for found in founds:
        for each in found:
            chunks.setdefault(each["id"], each)
    return list(chunks.values())
