"""What the RAGAS metrics ask, in words of our own, for replies of the form that RAGAS reads."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ragtrace.compat.tool import AS_DATA, fenced


def statements(question: str, answer: str) -> str:
    """Ask for the statements of an answer: `{"statements": [text]}`."""
    return _prompt(
        "Take the answer apart into the statements it makes. Each must be one fact, in a full sentence that"
        " is understood without the others: name what a pronoun stands for.",
        'Reply with a JSON object: {"statements": ["…", "…"]}; with an empty list if it states nothing.',
        fenced("question", question),
        fenced("answer", answer),
    )


def verdicts(context: str, stated: Sequence[str]) -> str:
    """Ask which statements the context supports:
    `{"statements": [{"statement", "reason", "verdict": 0 | 1}]}`."""
    return _prompt(
        "Decide for each statement whether it follows directly from the context: verdict 1 if it does, 0 if"
        " it does not, and also 0 if the context is silent about it.",
        'Reply with a JSON object: {"statements": [{"statement": "the statement, word for word",'
        ' "reason": "why, in one sentence", "verdict": 1}]}, in the order of the statements.',
        fenced("context", context),
        fenced("statements", json.dumps(list(stated), ensure_ascii=False, indent=1)),
    )


def made_question(answer: str) -> str:
    """Ask for a question that the answer answers: `{"question", "noncommittal": 0 | 1}`."""
    return _prompt(
        "Write the question that this answer is the answer to. Also say whether the answer commits itself to"
        " something: noncommittal is 1 if it evades, is vague, or says that it does not know, else 0.",
        'Reply with a JSON object: {"question": "…", "noncommittal": 0}.',
        fenced("answer", answer),
    )


def usefulness(question: str, context: str, answer: str) -> str:
    """Ask whether one context was of use for the answer: `{"reason", "verdict": 0 | 1}`."""
    return _prompt(
        "Decide whether the context was of use in arriving at this answer to the question: verdict 1 if it"
        " was, 0 if it was not.",
        'Reply with a JSON object: {"reason": "why, in one sentence", "verdict": 1}.',
        fenced("question", question),
        fenced("context", context),
        fenced("answer", answer),
    )


def recall(question: str, context: str, reference: str) -> str:
    """Ask which statements of the reference the context holds:
    `{"classifications": [{"statement", "reason", "attributed": 0 | 1}]}`."""
    return _prompt(
        "Go through the answer statement by statement, and decide for each whether the context says so:"
        " attributed is 1 if it can be traced back to the context, else 0.",
        'Reply with a JSON object: {"classifications": [{"statement": "the statement, word for word",'
        ' "reason": "why, in one sentence", "attributed": 1}]}.',
        fenced("question", question),
        fenced("context", context),
        fenced("answer", reference),
    )


def worth_of_context(question: str, context: str) -> str:
    """Ask how much of what the question needs the context holds: a rating of 0, 1 or 2."""
    return _prompt(
        "How relevant is the context to the question? Go by what stands in the two alone, not by what you"
        " know besides. Rate 0 if nothing in it helps to answer the question, 1 if a part of it does, 2 if it"
        " holds what the answer needs.",
        fenced("question", question),
        fenced("context", context),
    )


def worth_of_context_again(question: str, context: str) -> str:
    """Ask the same in another way, for the second judge."""
    return _prompt(
        "You are given a text that was retrieved for a question. Say to what extent somebody who has"
        " nothing but this text could answer: 2 for in full, 1 for in part, 0 for not at all.",
        fenced("context", context),
        fenced("question", question),
    )


def supports(context: str, answer: str) -> str:
    """Ask how far the context supports the answer: a rating of 0, 1 or 2."""
    return _prompt(
        "How far does the context support the assertion? Rate 0 if it does not, or if one of the two is"
        " empty, 1 if it supports a part of it, 2 if it supports all of it.",
        fenced("context", context),
        fenced("assertion", answer),
    )


def supports_again(context: str, answer: str) -> str:
    """Ask the same in another way, for the second judge."""
    return _prompt(
        "Compare an assertion with the source it should rest on. 2: everything in it stands in the source."
        " 1: some of it does. 0: none of it does, or there is no source or no assertion.",
        fenced("assertion", answer),
        fenced("source", context),
    )


def as_json(prompt: str) -> str:
    """Let a rating come as `{"rating": 0 | 1 | 2}`."""
    return f'{prompt}\n\nReply with a JSON object: {{"rating": X}}, where X is 0, 1 or 2.'


def as_digit(prompt: str) -> str:
    """Let a rating come as a bare digit."""
    return f"{prompt}\n\nReply with the digit 0, 1 or 2 and nothing else."


def correction(prompt: str, reply: str, fault: str) -> str:
    """Ask again, with what was wrong about the reply."""
    return (
        f"{prompt}\n\nYour reply was:\n{fenced('reply', reply)}\n\n"
        f"It cannot be read: {fault}. Reply again with the corrected JSON object alone."
    )


def repair(prompt: str, reply: str) -> str:
    """Ask to bring a reply into the form its prompt asks for: `{"text": corrected reply}`."""
    return _prompt(
        "The reply below does not have the form that its instructions ask for. Bring it into that form"
        " without changing what it says.",
        'Reply with a JSON object: {"text": "the corrected reply, as a string"}.',
        fenced("instructions", prompt),
        fenced("reply", reply),
    )


def _prompt(*paragraphs: str) -> str:
    task, *rest = paragraphs
    return "\n\n".join((task, AS_DATA, *rest))
