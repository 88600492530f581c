"""A language model that answers as models do, behind an OpenAI-compatible endpoint, and counts what it took.

It looks up nothing: it finds none, one or two claims in a sentence, forgets some, quotes at length or hardly,
gives reasons of several words, and now and then replies in a form that nobody asked for. How often it does,
its `Habits` say. The same request always gets the same reply.
"""

from __future__ import annotations

import json
import math
import re
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ragtrace.judge.phrases import is_refusal
from ragtrace.judge_forms import NumberedText
from ragtrace.sentences import split_sentences
from tests.gullible_model import chunks_in, completion, numbered, running_model, sections

_REMINDED = "Your last reply left numbers out"
_WORDS = re.findall(
    r"\w+",
    "the passage says so in its first sentence and gives the same number while another chunk is about"
    " something else entirely so that nothing there speaks for or against what is claimed here",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a model answers, and how its provider counts."""

    claims: tuple[float, float, float] = (0.1, 0.6, 0.3)
    """Shares of the sentences with none, one and two claims."""
    forgets: float = 0.03
    """Share of sentences and claims that it says nothing about."""
    malformed: float = 0.02
    """Share of replies in another form."""
    reason_words: tuple[int, int] = (4, 20)
    letters_a_token: float = 8.0
    """A word of so many letters is one token."""

    def tokens(self, text: str) -> int:
        """Count the tokens of a text: pieces of words, and marks."""
        return sum(math.ceil(len(word) / self.letters_a_token) for word in re.findall(r"\w+|[^\w\s]", text))


@dataclass(slots=True, kw_only=True)
class TypicalModel:
    """The model, and what it was asked."""

    habits: Habits
    url: str = ""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        chance = Random(zlib.crc32(json.dumps(messages).encode()))
        user = str(messages[1]["content"])
        forgets = 0.0 if _REMINDED in user else self.habits.forgets
        text = json.dumps(self._value(user, chance, forgets), ensure_ascii=False)
        if len(messages) == 2 and chance.random() < self.habits.malformed:
            text = text[: len(text) // 2]
        return completion(body, text) | {"usage": self._count(body, text)}

    def _count(self, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        asked = [str(message["content"]) for message in body["messages"]]
        asked.append(json.dumps(body.get("response_format", {})))
        prompt, told = sum(self.habits.tokens(each) + 4 for each in asked), self.habits.tokens(text)
        with self._lock:
            self.calls += 1
            self.input_tokens += prompt
            self.output_tokens += told
        return {"prompt_tokens": prompt, "completion_tokens": told, "total_tokens": prompt + told}

    def _value(self, user: str, chance: Random, forgets: float) -> dict[str, Any]:
        found = sections(user)
        chunks = chunks_in(found)
        if "answer" in found:
            return self._extracted(numbered(found["answer"]), chance, forgets)
        if "statements" in found:
            words = ("direct", "supporting", "irrelevant")
            statements = numbered(found["statements"])
            return {"statements": [{"id": n.number, "relevance": chance.choice(words)} for n in statements]}
        graded = {"chunks": [self._grade(chunk, chance) for chunk in chunks]}
        if "claims" not in found:
            return graded
        verdicts = {"verdicts": self._verdicts(numbered(found["claims"]), chunks, chance, forgets)}
        return graded | verdicts if "question" in found else verdicts

    def _extracted(self, sentences: Sequence[NumberedText], chance: Random, forgets: float) -> dict[str, Any]:
        claims: list[dict[str, Any]] = []
        for sentence in sentences:
            refuses = is_refusal(sentence.text)
            number = 1 if refuses else chance.choices((0, 1, 2), self.habits.claims)[0]
            if chance.random() < forgets:
                continue
            claims += [
                {
                    "id": len(claims) + each + 1,
                    "sentence_ids": [sentence.number],
                    "text": _part(sentence.text, each, number),
                    "kind": "refusal" if refuses else "factual" if number else "opinion",
                }
                for each in range(max(1, number))
            ]
        return {"claims": claims, "refusal": bool(claims) and all(c["kind"] == "refusal" for c in claims)}

    def _verdicts(
        self, claims: Sequence[NumberedText], chunks: Sequence[NumberedText], chance: Random, forgets: float
    ) -> list[dict[str, Any]]:
        shown = " ".join(" ".join(chunk.text.split()) for chunk in chunks)
        return [
            self._verdict(claim, chunks, chance, stands=claim.text in shown)
            for claim in claims
            if chance.random() >= forgets
        ]

    def _verdict(
        self, claim: NumberedText, chunks: Sequence[NumberedText], chance: Random, *, stands: bool
    ) -> dict[str, Any]:
        chunk = chance.choice(chunks)
        sentence = chance.choice(split_sentences(chunk.text)).text
        quote = sentence[: chance.randint(20, 160)] if stands or chance.random() < 0.7 else ""
        return {
            "id": claim.number,
            "chunks": [chunk.number] if quote else [],
            "quote": quote,
            "label": "supported" if stands else chance.choice(("not_mentioned", "contradicted")),
            "reason": self._reason(chance),
        }

    def _grade(self, chunk: NumberedText, chance: Random) -> dict[str, Any]:
        reason = self._reason(chance)[:200]
        return {"id": chunk.number, "reason": reason, "relevance": chance.randint(0, 2)}

    def _reason(self, chance: Random) -> str:
        return " ".join(chance.choices(_WORDS, k=chance.randint(*self.habits.reason_words)))[:400]


def _part(text: str, which: int, of: int) -> str:
    """Return a claim of a sentence: all of it, or a part with the beginning that the others have, too."""
    words = text.split()
    if of < 2 or len(words) < 6:
        return f"{text} ({which + 1})"[:1000] if of > 1 else text[:1000]
    middle = len(words) // 2
    return " ".join([*words[:3], *(words[3:middle] if which == 0 else words[middle:])])[:1000]


@contextmanager
def running_typical_model(habits: Habits) -> Iterator[TypicalModel]:
    model = TypicalModel(habits=habits)
    with running_model(model.reply) as model.url:
        yield model
