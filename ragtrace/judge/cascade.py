"""The cascade: a screen, which computes, decides the claims that it is sure of; a language model the rest.

The screen gives each claim a probability that the chunks support it. It decides a claim only if it has a
verdict and the probability is outside the band: with the band 0.1 to 0.9, a screen whose probabilities are
calibrated is wrong about at most a tenth of the claims it decides, one by one. `ragtrace calibrate` measures
that error. The model sees the other claims only; an answer that has none costs no call.

Every verdict says who gave it (``ragtrace.claim.decided_by``). The canary claims of prompt injection are for
the model: a screen follows no instructions.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeUnable
from ragtrace.judge.layers import JudgeLayer
from ragtrace.judge_forms import ExtractInput, VerifyInput, VerifyReply
from ragtrace.model import DecidedBy, JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, YesProbability

ReplyT = TypeVar("ReplyT", bound=BaseModel)

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
