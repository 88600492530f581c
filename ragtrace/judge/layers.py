"""Layers around a judge: a layer wraps a judge, is a judge, and adds one thing; and the HTTP requests beneath
it.

`open_judge` puts on, from the outside: cache, retries, the caller's own layer, pace.

Observers count each HTTP request before it is sent, and its usage afterwards. One judge request may take
several HTTP requests, for example to learn the dialect or to correct a reply. The observers (`watched_by`)
see every one, however it ends. The usage that an endpoint reports is accepted within bounds: the input that
was sent, and the output limit.

The cascade: a screen, which computes, decides the claims that it is sure of; a language model the rest.
The screen gives each claim a probability that the chunks support it. It decides a claim only if it has a
verdict and the probability is outside the band: with the band 0.1 to 0.9, a screen whose probabilities are
calibrated is wrong about at most a tenth of the claims it decides, one by one. `ragtrace calibrate` measures
that error. The model sees the other claims only; an answer that has none costs no call.

Every verdict says who gave it (``ragtrace.claim.decided_by``). The canary claims of prompt injection are for
the model: a screen follows no instructions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from ragtrace.errors import ConfigError, JudgeError, JudgeTimeout, JudgeUnable, JudgeUnavailable
from ragtrace.http import Backoff, Sleep
from ragtrace.judge_forms import ExtractInput, VerifyInput, VerifyReply
from ragtrace.model import DecidedBy, JudgeIdentity, Usage
from ragtrace.ports import Embeddings, Judge, JudgeReply, JudgeRequest, YesProbability

log = logging.getLogger("ragtrace.judge")

TEMPLATE_TOKENS: Final = 4_096
"""Tokens that an endpoint may add: a chat template, the form of tools, a gateway's instructions."""
END_TOKENS: Final = 8
"""Some endpoints count the tokens that end a reply."""
_BYTES_A_TOKEN: Final = 2
_MOST_OUTPUT: Final = 131_072
"""Output bound of a request without a limit: no model writes more in one reply."""
_MOST_NAME: Final = 200
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
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
    unspaced = 0 if text.isascii() else len(_UNSPACED.findall(text))
    return len(text.split()) + unspaced // _SIGNS_A_TOKEN


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


ReplyT = TypeVar("ReplyT", bound=BaseModel)
AnswerT = TypeVar("AnswerT", bound="JudgeReply[Any] | Embeddings")
LayerT = TypeVar("LayerT", bound="JudgeLayer")


class JudgeLayer:
    """Delegates everything; a layer overrides what it changes."""

    def __init__(self, judge: Judge) -> None:
        self.inner = judge

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self.inner.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request."""
        return await self.inner.ask(request)

    async def aclose(self) -> None:
        """Release the resources of the judge and the layer."""
        await self.inner.aclose()


def layer_of(judge: Judge, kind: type[LayerT]) -> LayerT | None:
    """Return the outermost layer of a kind, if there is one."""
    while isinstance(judge, JudgeLayer):
        if isinstance(judge, kind):
            return judge
        judge = judge.inner
    return None


def unwrapped(judge: Judge) -> Judge:
    """Return the innermost judge, without layers."""
    while isinstance(judge, JudgeLayer):
        judge = judge.inner
    return judge


def folding_contradicted(judge: Judge) -> Judge:
    """Let the judge's verdict *contradicted* count as *unsupported*."""
    return judge if judge.identity.folds_contradicted else _Folding(judge)


class _Folding(JudgeLayer):
    """The step that asks for verdicts folds them: it has the evidence."""

    @property
    def identity(self) -> JudgeIdentity:
        return replace(self.inner.identity, contradicts=False, folds_contradicted=True)


def spent_by(judge: Judge) -> Usage:
    """Return a judge's usage so far, over all callers and failed requests; empty if no layer counts it."""
    layer = layer_of(judge, Retrying)
    return layer.spent if layer else Usage()


class Retrying(JudgeLayer):
    """Limits concurrent requests, retries after ``JudgeUnavailable`` (429, 5xx, no connection), sums usage.

    A time-out is not retried: a slow server would need as long again.
    """

    def __init__(
        self, judge: Judge, backoff: Backoff, *, max_concurrency: int = 8, sleep: Sleep = asyncio.sleep
    ) -> None:
        super().__init__(judge)
        self.spent = Usage()
        self._backoff = backoff
        self._slots = asyncio.Semaphore(max_concurrency)
        self._sleep = sleep

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            async with self._slots:
                reply = await retried(lambda: self.inner.ask(request), self._backoff, self._sleep)
        except JudgeError as failed:
            self.spent += failed.usage
            raise
        self.spent += reply.usage
        return reply


async def retried(
    attempt: Callable[[], Awaitable[AnswerT]], backoff: Backoff, sleep: Sleep = asyncio.sleep
) -> AnswerT:
    """Retry until there is an answer. Its usage, or the error's, covers all attempts.

    Raises:
        JudgeError: the last attempt failed, or a retry cannot help.
    """
    spent = Usage()
    for retry in range(backoff.max_retries + 1):
        try:
            answer = await attempt()
        except JudgeError as failed:
            spent = failed.usage = spent + failed.usage
            if not isinstance(failed, JudgeUnavailable):
                raise
            wait_s = backoff.wait_s(retry, failed.retry_after_s, random.random())
            if wait_s is None:
                raise
            await sleep(wait_s)
        else:
            return replace(answer, usage=spent + answer.usage) if retry else answer
    raise AssertionError("the last retry gives up")


def limiter_of(judge: Judge) -> AdaptiveLimiter | None:
    """Return the adaptive limiter among a judge's layers, if there is one."""
    layer = layer_of(judge, Paced)
    return layer.limiter if layer else None


class Paced(JudgeLayer):
    """Limits concurrent requests by what the judge can take, and the seconds of each."""

    def __init__(self, judge: Judge, most: int, timeout_s: float) -> None:
        super().__init__(judge)
        self.limiter = AdaptiveLimiter(most)
        self._timeout_s = timeout_s

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        async with self.limiter.turn():
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self.inner.ask(request)
            except TimeoutError as exc:
                raise JudgeTimeout(f"the judge gave no answer within {self._timeout_s:g} s") from exc


class AdaptiveLimiter:
    """Halves the number of concurrent requests after an overload, adds one after a clean round.

    A time-out or an unavailable endpoint (429, 5xx, no connection) is an overload.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        """The current limit of concurrent requests."""
        self._under_way = 0
        self._freed = asyncio.Event()
        self._cuts = 0
        self._clean = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot, then adapt the limit to the request's outcome."""
        while self._under_way >= self.limit:
            self._freed.clear()
            await self._freed.wait()
        self._under_way += 1
        cuts_before = self._cuts
        try:
            yield
        except (JudgeUnavailable, JudgeTimeout):
            if cuts_before == self._cuts:  # else the request began before the last cut
                self.limit = max(1, self.limit // 2)
                self._cuts += 1
                self._clean = 0
            raise
        else:
            self._clean += 1
            if self._clean >= self.limit < self.most:
                self.limit += 1
                self._clean = 0
        finally:
            self._under_way -= 1
            self._freed.set()


DEFAULT_BAND: Final = (0.1, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenSpec:
    """Who is asked before the judge, and when it is believed."""

    use: str = "lexical"
    """A judge that computes: ``lexical`` or ``nli:FOLDER``."""
    band: tuple[float, float] = DEFAULT_BAND
    """The judge decides claims whose probability of support is within these, both included."""

    def __post_init__(self) -> None:
        """Refuse a band that is none.

        Raises:
            ConfigError: the band is empty, or not within 0 and 1.
        """
        low, high = self.band
        if not 0 <= low < high <= 1:
            raise ConfigError(
                f"the cascade's band is {low:g} to {high:g}: give two probabilities, the lower one first,"
                " such as 0.1,0.9"
            )

    @property
    def named(self) -> str:
        """How carriers name it, without the folder of a model: that is in its identity."""
        low, high = self.band
        return f"[{low:g}, {high:g}]"


def screened(judge: Judge, screen: Judge, spec: ScreenSpec) -> Judge:
    """Let ``screen`` decide what it is sure of before ``judge`` is asked.

    Closing the cascade closes both.

    Raises:
        ConfigError: the screen is a language model, or the judge computes itself.
    """
    if not screen.identity.computes:
        raise ConfigError(
            f"the cascade's screen {spec.use!r} is a language model: take `lexical` or `nli:FOLDER`"
        )
    if judge.identity.computes and judge.identity.provider != "scripted":
        raise ConfigError(
            f"the judge behind the screen is {judge.identity.provider!r}, which computes as the screen does:"
            " take a language model, such as openai:MODEL, or no `screen`"
        )
    return CascadeJudge(judge, screen, spec)


class CascadeJudge(JudgeLayer):
    """Asks the inner judge about the claims that a screen leaves open."""

    def __init__(self, judge: Judge, screen: Judge, spec: ScreenSpec) -> None:
        super().__init__(judge)
        self._screen = screen
        self._spec = spec
        identity = screen.identity
        parameters = f" {identity.parameters}" if identity.parameters else ""
        self._name = f"{identity.provider}:{identity.model}{parameters} {spec.named}"

    @property
    def identity(self) -> JudgeIdentity:
        """The inner judge behind this screen."""
        return replace(self.inner.identity, screen=self._name)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request: the screen first, where it can.

        Raises:
            JudgeUnable: the verdict is asked for as P(Yes), about one claim a call.
            JudgeError: the screen or the judge gave no usable answer.
        """
        match request.inputs:
            case ExtractInput():  # it takes sentences for claims, which costs no call
                return replace(await self._screen.ask(request), usage=Usage())
            case VerifyInput() if request.step == "verify" and request.about is not None:
                verified = await self._verify(cast("JudgeRequest[VerifyReply]", request))
                return cast("JudgeReply[ReplyT]", verified)
        if request.reply_type is YesProbability:
            what = "a cascade asks for verdicts in JSON: its screen is asked about all claims at once"
            raise JudgeUnable(what, usage=Usage())
        return await self.inner.ask(request)

    async def aclose(self) -> None:
        """Close both."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.inner.aclose)
            closing.push_async_callback(self._screen.aclose)

    async def _verify(self, request: JudgeRequest[VerifyReply]) -> JudgeReply[VerifyReply]:
        (low, high), screened = self._spec.band, await self._screen.ask(request)
        support = {number: p for number, p in screened.support.items() if number in request.items}
        sure = {number for number, p in support.items() if p < low or p > high} - screened.abstained
        decided = {given.id: given for given in screened.value.verdicts if given.id in sure}
        rest = JudgeReply(value=VerifyReply(verdicts=[]), usage=Usage())
        open_claims = [number for number in request.items if number not in decided]
        if open_claims and request.about is not None:
            rest = await self.inner.ask(request.about(open_claims))
        # a verdict of the judge on a claim that it was not asked about counts for nothing
        given = [verdict for verdict in rest.value.verdicts if verdict.id not in decided]
        return replace(
            rest,
            value=VerifyReply(verdicts=[*decided.values(), *given]),
            support=support,
            decided_by={
                number: DecidedBy.SCREEN if number in decided else DecidedBy.JUDGE for number in support
            },
        )
