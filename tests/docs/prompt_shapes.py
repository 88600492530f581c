"""The shapes of prompts whose passages are told from the rest, as docs/conventions.md lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["QUESTION", "RETURNS", "SHAPES", "WARRANTY", "Shape"]

QUESTION: Final = "How long does the warranty last?"
WARRANTY: Final = "The warranty on every lamp lasts 24 months."
RETURNS: Final = "Unused lamps can be returned within 30 days of delivery."
BOTH: Final = (WARRANTY, RETURNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A prompt, and the passages in it."""

    name: str
    messages: Sequence[Mapping[str, str]]
    passages: Sequence[str] = BOTH


def _alone(name: str, text: str, passages: Sequence[str] = BOTH) -> Shape:
    return Shape(name=name, messages=[{"role": "user", "content": text}], passages=passages)


def _beside(name: str, system: str, passages: Sequence[str] = BOTH, user: str = QUESTION) -> Shape:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return Shape(name=name, messages=messages, passages=passages)


_FROM_CONTEXT = "Answer from the context only."
_ONE = (f"{WARRANTY}\n\n{RETURNS}",)

SHAPES: Final = (
    _alone(
        "tags",
        f"Use the documents.\n<document>{WARRANTY}</document>\n<document>{RETURNS}</document>\n\n{QUESTION}",
    ),
    _alone("one tag", f"<context>\n{WARRANTY}\n</context>\n\n{QUESTION}", [WARRANTY]),
    _beside(
        "tags within tags",
        "Answer from the documents in <documents> tags.\n<documents>\n"
        '<document index="1">\n<source>faq.md</source>\n'
        f"<document_content>\n{WARRANTY}\n</document_content>\n</document>\n"
        '<document index="2">\n<source>faq.md</source>\n'
        f"<document_content>\n{RETURNS}\n</document_content>\n</document>\n"
        "</documents>",
    ),
    _alone(
        "a question in tags", f"<context>{WARRANTY}</context>\n<question>{QUESTION}</question>", [WARRANTY]
    ),
    _alone("labels", f"Document 1: {WARRANTY}\nDocument 2: {RETURNS}\n\nQuestion: {QUESTION}\nAnswer:"),
    _alone(
        "numbered labels on lines of their own",
        f"Passage [1]:\n{WARRANTY}\n\nPassage [2]:\n{RETURNS}\n\n{QUESTION}",
    ),
    _alone("context and question", f"Context: {WARRANTY}\n\nQuestion: {QUESTION}", [WARRANTY]),
    _alone(
        "a chain's template",
        "Use the following pieces of context to answer the question at the end. If you don't know the "
        f"answer, just say that you don't know.\n\n{WARRANTY}\n\n{RETURNS}\n\n"
        f"Question: {QUESTION}\nHelpful Answer:",
        _ONE,
    ),
    _alone(
        "an engine's template",
        f"Context information is below.\n---------------------\n{WARRANTY}\n\n{RETURNS}\n"
        "---------------------\n"
        "Given the context information and not prior knowledge, answer the query.\n"
        f"Query: {QUESTION}\nAnswer: ",
        _ONE,
    ),
    _alone(
        "a pipeline's template",
        f"Answer the question from the documents.\n\nDocuments:\n- {WARRANTY}\n- {RETURNS}\n\n"
        f"Question: {QUESTION}\nAnswer:",
    ),
    _beside("a context in the system prompt", f"{_FROM_CONTEXT}\n\nContext:\n{WARRANTY}", [WARRANTY]),
    _beside(
        "Markdown headings",
        f"{_FROM_CONTEXT}\n\n## Context\n1. {WARRANTY}\n2. {RETURNS}\n\n## Rules\n- Be short.",
    ),
    _beside("fences", f"{_FROM_CONTEXT}\n\nContext:\n```\n{WARRANTY}\n```\n```\n{RETURNS}\n```"),
    _beside("quotes", f'{_FROM_CONTEXT}\n\nContext:\n"""\n{WARRANTY}\n"""', [WARRANTY]),
    _beside("lines between passages", f"{_FROM_CONTEXT}\n\nContext:\n{WARRANTY}\n---\n{RETURNS}"),
    _beside("brackets", f"Answer from these passages only.\n\n[1] {WARRANTY}\n[2] {RETURNS}"),
    _beside(
        "names in brackets",
        f"Answer from these passages of our handbook.\n\n[warranty] {WARRANTY}\n[returns] {RETURNS}",
    ),
    _alone(
        "brackets before the question",
        f"Use the sources below.\n\n[1] {WARRANTY}\n\n[2] {RETURNS}\n\n{QUESTION}",
    ),
    _beside("a sentence that points to them", f"Answer from these passages only.\n\n{WARRANTY}\n{RETURNS}"),
    _beside(
        "documents as JSON",
        "Use the documents: " + json.dumps([{"id": "a", "text": WARRANTY}, {"id": "b", "text": RETURNS}]),
    ),
    _beside(
        "a heading that says retrieved",
        f"You help customers.\n\nRetrieved passages:\n[1] {WARRANTY}\n[2] {RETURNS}",
    ),
)
