"""A chat completion: its text, finish reason, usage and the log-probabilities of its first tokens."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragtrace.judge.calls import JudgeCall
from ragtrace.model import Usage

Likely: TypeAlias = Mapping[str, float]
"""Log-probabilities of the likeliest tokens at one position of a reply."""

_ORNAMENT = re.compile(r"[\W_]+")
"""Blanks, quotes, markup."""
_LEAST_MASS = 0.01
"""The least P(yes) + P(no): below it the model says something else, and the ratio of the two is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The first choice of a chat completion."""

    text: str
    finish_reason: str
    declined: bool
    likely: tuple[Likely, ...] | None
    """By token; ``None`` if the reply has no log-probabilities."""
    usage: Usage

    @property
    def thinks(self) -> bool:
        """Whether the model reasons before it answers."""
        opening = _likeliest(self.likely[0]) if self.likely else self.text
        return self.usage.reasoning_tokens > 0 or opening.lstrip().startswith("<think")

    @classmethod
    def of(cls, completion: Any, usage: Usage) -> Completion:
        """Read a completion. It may be any JSON: the client does not validate it.

        Raises:
            AttributeError, TypeError, IndexError, ValueError: it is no chat completion.
        """
        choice = completion.choices[0]
        message = choice.message
        calls = [call for call in message.tool_calls or () if call.type == "function"]
        said = _text(calls[0].function.arguments if calls else message.content)
        return cls(
            # a server that takes all that is said for reasoning
            text=said if said.strip() else _text(message.reasoning_content or message.reasoning),
            finish_reason=choice.finish_reason,
            declined=choice.finish_reason in ("content_filter", "refusal") or bool(message.refusal),
            likely=_likely(getattr(choice, "logprobs", None)),
            usage=usage,
        )


def note_usage(completion: Any, call: JudgeCall) -> None:
    """Record who answered and the usage, as a completion reports it; the completion may be any JSON."""
    call.came_from(getattr(completion, "model", None), getattr(completion, "system_fingerprint", None))
    usage = getattr(completion, "usage", None)
    if usage is None:
        return
    if not isinstance(usage, Mapping):
        call.took_nonsense()
        return
    sent, came = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    call.took(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cached_tokens=sent.get("cached_tokens") if isinstance(sent, Mapping) else 0,
        reasoning_tokens=came.get("reasoning_tokens") if isinstance(came, Mapping) else 0,
    )


def yes_probability(likely: Sequence[Likely]) -> float | None:
    """Return P(yes) / (P(yes) + P(no)) at the first token with a letter or digit.

    All spellings of the two count (``Yes``, `` yes``, ``YES``, ``"no``). ``None`` if the model says
    something else.
    """
    first = next((place for place in likely if _word(_likeliest(place))), None)
    if first is None:
        return None
    yes, no = (_mass(first, word) for word in ("yes", "no"))
    return yes / (yes + no) if yes + no >= _LEAST_MASS else None


def _likeliest(place: Likely) -> str:
    return max(place, key=place.__getitem__, default="")


def _mass(place: Likely, word: str) -> float:
    return math.fsum(math.exp(min(0.0, value)) for token, value in place.items() if _word(token) == word)


def _word(token: str) -> str:
    # raw vocabularies mark a leading blank with ▁ (no word character) or Ġ (a word character)
    return _ORNAMENT.sub("", token.removeprefix("Ġ")).casefold()


def _text(content: Any) -> str:
    """Read a message: a text, or a list of parts (some servers)."""
    if isinstance(content, Mapping):  # the arguments of a call, as an object instead of its text
        return json.dumps(content)
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError("a message must be a text or a list of parts")
    return content or ""


def _likely(logprobs: Any) -> tuple[Likely, ...] | None:
    """Read log-probabilities in the form of chat completions, or of the legacy completions API."""
    if logprobs is None:
        return None
    if content := getattr(logprobs, "content", None):
        places = [{top.token: top.logprob for top in place.top_logprobs or ()} for place in content]
    else:
        places = [dict(place) for place in getattr(logprobs, "top_logprobs", None) or ()]
    return tuple(_numbers(places)) if any(places) else None


def _numbers(places: Iterable[Mapping[Any, Any]]) -> Iterable[Likely]:
    for place in places:
        yield {str(token): float(value) for token, value in place.items() if not math.isnan(value)}
