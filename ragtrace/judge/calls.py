"""Requests to an endpoint, one by one: each is counted before it leaves the process, and what it took after.

One question to a judge may take several requests: a dialect that is found out, a reply that is sent back to
be corrected. Whoever counts them (`watched_by`) is told of each, however it ends. What an endpoint says that
a request took is believed within bounds: what was sent, and what was asked for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ragtrace.model import Usage

log = logging.getLogger("ragtrace.judge")

TEMPLATE_TOKENS: Final = 4_096
"""What an endpoint may add to a request: a chat template, a form of tools, instructions of a gateway."""
END_TOKENS: Final = 8
"""Some count the tokens that end a reply."""
_BYTES_A_TOKEN: Final = 2
_MOST_OUTPUT: Final = 131_072
"""Of a request without a limit: no model writes more at once."""
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_UNTOUCHED: Final = frozenset({401, 402, 403, 404, 405, 407, 429, 503, 529})


def was_turned_down(status: int) -> bool:
    """Whether a status says that nobody worked on the request: a redirect, no right, no quota, no room.

    All others may have taken tokens, and been billed: a model may have answered before what stands in front
    of it failed, and texts that a filter stops are read before.
    """
    return 300 <= status < 400 or status in _UNTOUCHED


def document_of(body: Mapping[str, Any]) -> bytes:
    """Write a body as it is posted: lone surrogates, which have no UTF-8, as question marks."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """What one request says, and how much it can take whoever answers it."""

    body: Mapping[str, Any]
    document: bytes
    """The body as it is posted."""
    output_tokens: int
    """Of the reply, as most are expected."""

    @classmethod
    def by(cls, body: Mapping[str, Any], *, output_tokens: int) -> CallRequest:
        """Write a body down."""
        return cls(body=body, document=document_of(body), output_tokens=output_tokens)

    @property
    def largest(self) -> Usage:
        """What it is expected to take at most."""
        tokens = len(self.document) // _BYTES_A_TOKEN + 1
        return Usage(calls=1, input_tokens=tokens, output_tokens=self._most_output(self.output_tokens))

    @property
    def most_input(self) -> int:
        """No tokenizer makes more tokens of it: one a byte."""
        return len(self.document) + TEMPLATE_TOKENS

    @property
    def most_output(self) -> int:
        """The endpoint was told to write no more tokens."""
        return self._most_output(_MOST_OUTPUT) + END_TOKENS if self.output_tokens else 0

    def _most_output(self, otherwise: int) -> int:
        told = [limit for name in _LIMITS if isinstance(limit := self.body.get(name), int)]
        return max(told, default=otherwise)


@dataclass(slots=True, kw_only=True)
class JudgeCall:
    """One request, and what is known of what it took: nothing, until someone says so."""

    asked: CallRequest
    usage: Usage = field(default_factory=lambda: Usage(calls=1))
    """As far as it is known."""
    is_known: bool = False
    """Whether nothing else was taken. A request that timed out or broke off may have taken anything."""
    doubt: str = ""
    """Why what the endpoint says of its tokens is not believed."""

    def stayed(self) -> None:
        """Note that it never left: nobody was there."""
        self.usage, self.is_known = Usage(), True

    def turned_down(self) -> None:
        """Note that it left, and nobody worked on it."""
        self.is_known = True

    def took(
        self,
        *,
        input_tokens: object,
        output_tokens: object = 0,
        cached_tokens: object = 0,
        reasoning_tokens: object = 0,
    ) -> None:
        """Note what the endpoint says that it took: whatever that is, as far as it can be."""
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
        """Note that what the endpoint says of it cannot be read."""
        self.doubt = "what is no usage"

    def _believed(self, told: object, most: int, than: str) -> int | None:
        """Return a number of tokens, ``None`` if there is none."""
        if told is None:
            return None
        if isinstance(told, bool) or not isinstance(told, int | float) or told != told or told % 1:
            self.doubt = "what is no whole number"
            return None
        if told < 0:
            self.doubt = "less than none"
            return None
        if told > most:
            self.doubt = f"more {than}"
        return int(min(told, most))


class CallObserver(Protocol):
    """Counts requests."""

    def request(self, call: JudgeCall) -> AbstractAsyncContextManager[None]:
        """Count a request before it leaves, and when it has ended what it took.

        Raises:
            JudgeOverBudget: it must not leave.
        """
        ...


_WATCHERS: ContextVar[tuple[CallObserver, ...]] = ContextVar("ragtrace_watchers", default=())


@contextmanager
def watched_by(*watchers: CallObserver) -> Iterator[None]:
    """Let these count every request of the block, and nobody else."""
    token = _WATCHERS.set(watchers)
    try:
        yield
    finally:
        _WATCHERS.reset(token)


class UsageDoubts:
    """Tells once that an endpoint's numbers of tokens are not believed."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._is_told = False

    def tell(self, doubt: str) -> None:
        """Say what is wrong with them, if that was not said before."""
        if not self._is_told:
            log.warning(
                "%s: it says that a request took %s: of tokens, only what was sent and asked for is believed",
                self._who,
                doubt,
            )
        self._is_told = True


@asynccontextmanager
async def made(asked: CallRequest, doubts: UsageDoubts) -> AsyncIterator[JudgeCall]:
    """Make a request in the block, once everyone who counts has counted it.

    Raises:
        JudgeOverBudget: it must not leave.
    """
    call = JudgeCall(asked=asked)
    async with AsyncExitStack() as counted:
        try:
            for watcher in _WATCHERS.get():
                await counted.enter_async_context(watcher.request(call))
        except BaseException:
            call.stayed()
            raise
        yield call
    if call.doubt:
        doubts.tell(call.doubt)
