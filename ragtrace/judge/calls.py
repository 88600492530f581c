"""Single HTTP requests of a judge. Observers count each one before it is sent, and its usage afterwards.

One judge request may take several HTTP requests, for example to learn the dialect or to correct a reply. The
observers (`watched_by`) see every one, however it ends. The usage that an endpoint reports is accepted within
bounds: the input that was sent, and the output limit.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pydantic_core import PydanticSerializationError, to_json

from ragtrace.model import Usage

log = logging.getLogger("ragtrace.judge")

TEMPLATE_TOKENS: Final = 4_096
"""Tokens that an endpoint may add: a chat template, the form of tools, a gateway's instructions."""
END_TOKENS: Final = 8
"""Some endpoints count the tokens that end a reply."""
_BYTES_A_TOKEN: Final = 2
_MOST_OUTPUT: Final = 131_072
"""Output bound of a request without a limit: no model writes more in one reply."""
_MOST_NAME: Final = 200
_WORD: Final = re.compile(r"[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]++")
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]++")
_SIGNS_A_TOKEN: Final = 4
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_UNTOUCHED: Final = frozenset({401, 402, 403, 404, 405, 407, 429, 503, 529})


def was_turned_down(status: int) -> bool:
    """Whether a status means that no model worked on the request: redirect, no permission, no quota, too
    large.

    Requests with other statuses may have used tokens and been billed: a model may answer before its gateway
    fails, and a content filter reads the texts first.
    """
    return 300 <= status < 400 or status in _UNTOUCHED


def fewest_tokens(text: str) -> int:
    """Return how many tokens a text takes at least: no tokenizer joins words, or many signs of Chinese."""
    unspaced = sum(map(len, _UNSPACED.findall(text)))
    return len(_WORD.findall(text)) + unspaced // _SIGNS_A_TOKEN


def document_of(body: Mapping[str, Any]) -> bytes:
    """Encode a body as it is posted; lone surrogates, which UTF-8 cannot encode, become question marks."""
    try:
        return to_json(body)  # in a quarter of the time
    except PydanticSerializationError:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The body of one request, and bounds of its usage."""

    body: Mapping[str, Any]
    document: bytes
    """The body as it is posted."""
    output_tokens: int
    """The expected upper bound of the reply."""

    @classmethod
    def by(cls, body: Mapping[str, Any], *, output_tokens: int) -> CallRequest:
        """Make a request from a body."""
        return cls(body=body, document=document_of(body), output_tokens=output_tokens)

    @property
    def largest(self) -> Usage:
        """The expected upper bound of its usage."""
        tokens = len(self.document) // _BYTES_A_TOKEN + 1
        return Usage(calls=1, input_tokens=tokens, output_tokens=self._most_output(self.output_tokens))

    @property
    def most_input(self) -> int:
        """The bound of its input tokens: no tokenizer makes more than one per byte."""
        return len(self.document) + TEMPLATE_TOKENS

    @property
    def most_output(self) -> int:
        """The bound of its output tokens, from the body's limit."""
        return self._most_output(_MOST_OUTPUT) + END_TOKENS if self.output_tokens else 0

    def _most_output(self, otherwise: int) -> int:
        limits = [limit for name in _LIMITS if isinstance(limit := self.body.get(name), int)]
        return max(limits, default=otherwise)


@dataclass(slots=True, kw_only=True)
class JudgeCall:
    """One request and its known usage, which is unknown at first."""

    asked: CallRequest
    usage: Usage = field(default_factory=lambda: Usage(calls=1))
    """The known part of its usage."""
    is_known: bool = False
    """Whether the usage is complete. A request that timed out or broke off may have used any amount."""
    doubt: str = ""
    """Why the reported usage is not accepted."""
    answered_by: tuple[str, str] | None = None
    """The model and the fingerprint of the system that the reply names; ``None`` if it names no model."""

    @property
    def spent(self) -> Usage:
        """The known part of its usage, with the call counted as unmetered if there may be more."""
        return self.usage if self.is_known else replace(self.usage, unmetered_calls=1)

    def came_from(self, model: object, fingerprint: object = None) -> None:
        """Record who answered, as the reply says (any values)."""
        if isinstance(model, str) and (name := _short(model)):
            self.answered_by = name, _short(fingerprint) if isinstance(fingerprint, str) else ""

    def stayed(self) -> None:
        """Record that the request was not sent: there was no connection."""
        self.usage, self.is_known = Usage(), True

    def turned_down(self) -> None:
        """Record that the endpoint rejected the request before any model worked on it."""
        self.is_known = True

    def took(
        self,
        *,
        input_tokens: object,
        output_tokens: object = 0,
        cached_tokens: object = 0,
        reasoning_tokens: object = 0,
    ) -> None:
        """Record the usage that the endpoint reports (any values), within the bounds."""
        sent = self._believed(input_tokens, self.asked.most_input, "than was sent")
        came = self._believed(output_tokens, self.asked.most_output, "than was asked for")
        self.usage = Usage(
            calls=1,
            input_tokens=sent or 0,
            output_tokens=came or 0,
            cached_tokens=self._believed(cached_tokens, sent or 0, "from a cache than in all") or 0,
            reasoning_tokens=self._believed(reasoning_tokens, _MOST_OUTPUT, "than a model can") or 0,
        )
        self.is_known = bool(sent) and came is not None

    def took_nonsense(self) -> None:
        """Record that the reported usage cannot be read."""
        self.doubt = "what is no usage"

    def _believed(self, reported: object, most: int, than: str) -> int | None:
        """Return a plausible number of tokens, else ``None``."""
        if reported is None:
            return None
        if (
            isinstance(reported, bool)
            or not isinstance(reported, int | float)
            or reported != reported
            or reported % 1
        ):
            self.doubt = "what is no whole number"
            return None
        if reported < 0:
            self.doubt = "less than none"
            return None
        if reported > most:
            self.doubt = f"more {than}"
        return int(min(reported, most))


def _short(name: str) -> str:
    """Return a name without what no name has: a reply may hold anything."""
    return "".join(letter for letter in name if letter.isprintable())[:_MOST_NAME].strip()


CallObserver: TypeAlias = Callable[[JudgeCall], AbstractAsyncContextManager[None]]
"""Counts a request before it is sent, and its usage when it has ended; may raise ``JudgeOverBudget``."""
_WATCHERS: ContextVar[tuple[CallObserver, ...]] = ContextVar("ragtrace_watchers", default=())


@contextmanager
def watched_by(*watchers: CallObserver) -> Iterator[None]:
    """Let only these observers count the requests of the block."""
    token = _WATCHERS.set(watchers)
    try:
        yield
    finally:
        _WATCHERS.reset(token)


class UsageDoubts:
    """Warns once if an endpoint reports implausible token counts."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._is_told = False

    def tell(self, doubt: str) -> None:
        """Log a doubt the first time."""
        if not self._is_told:
            log.warning(
                "%s: it reports that a request took %s: token counts are capped at what was sent or allowed",
                self._who,
                doubt,
            )
        self._is_told = True


@asynccontextmanager
async def made(asked: CallRequest, doubts: UsageDoubts) -> AsyncIterator[JudgeCall]:
    """Make a request in the block after all observers have counted it.

    Raises:
        JudgeOverBudget: the request must not be sent.
    """
    call = JudgeCall(asked=asked)
    async with AsyncExitStack() as counted:
        try:
            for watcher in _WATCHERS.get():
                await counted.enter_async_context(watcher(call))
        except BaseException:
            call.stayed()
            raise
        yield call
    if call.doubt:
        doubts.tell(call.doubt)
