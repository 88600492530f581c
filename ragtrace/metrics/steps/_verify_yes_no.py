"""Verdicts as probabilities: one claim per call, the chunks first so that a server can cache the prefix.

P(yes, the chunks support the claim) decides whether it is supported; for the others, P(yes, the chunks
contradict it) decides which of the two it is. The confidence of a label follows: with p and q for the two,
p is for supported, (1 - p)·q for contradicted, (1 - p)·(1 - q) for neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ragtrace.errors import JudgeNonsense
from ragtrace.judge_forms import NumberedText, YesNoInput, YesNoQuestion
from ragtrace.judge_steps import Prompt
from ragtrace.metrics._canaries import CanaryClaim, CanaryClaims, check_canaries
from ragtrace.metrics._verdicts import CheckedVerdict, CheckedVerdicts, combine, omitted
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.judge_calls import together
from ragtrace.metrics.steps._sections import chunk_sections
from ragtrace.metrics.steps.step import Material
from ragtrace.model import Usage, VerdictLabel
from ragtrace.ports import JudgeRequest, YesProbability

Pack: TypeAlias = tuple[NumberedText, ...]

_EVEN = 0.5
_OUTPUT_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNoVerifier:
    """Requests the probability of a *yes* for each claim."""

    step: str
    material: Material
    canaries: CanaryClaims
    prompt: Prompt

    async def rule(self, claims: Sequence[NumberedText]) -> CheckedVerdicts:
        """Return a verdict on every claim.

        Raises:
            JudgeUnable: the judge gives no log-probabilities.
            JudgeError: it gave no usable answer to any question.
            JudgeCompromised: it failed a canary claim.
        """
        heard = await together(self._hear(pack, claims) for pack in self.material.context.packs)
        if claims and heard and not any(pack.support for pack in heard):
            raise JudgeNonsense("the judge answered neither yes nor no to any question", usage=Usage())
        if self.material.verify.second_look:
            doubtful = self._doubtful(claims, heard)
            heard = await together(self._hear_again(pack, doubtful) for pack in heard)
        doubtful = self._doubtful(claims, heard)
        heard = await together(self._hear_against(pack, doubtful) for pack in heard)
        return CheckedVerdicts(
            rulings={
                claim.number: combine([self._ruling(pack, claim) for pack in heard]) for claim in claims
            },
            canaries_passed=sum(pack.canaries_passed for pack in heard),
        )

    def _doubtful(self, claims: Sequence[NumberedText], heard: Sequence[_Heard]) -> list[NumberedText]:
        return [c for c in claims if not any(self._is_yes(pack.support.get(c.number, 0.0)) for pack in heard)]

    async def _hear(self, pack: Pack, claims: Sequence[NumberedText]) -> _Heard:
        canary_claims = self.canaries.among(pack) if claims else ()
        woven = self.canaries.weave(claims, canary_claims)
        said = await self._ask_each(pack, woven, "support", canary_claims)
        # after all replies: a failed canary must not hide the usage of concurrent requests
        passed = check_canaries(
            canary_claims if said else (), [(number, self._is_yes(p)) for number, p in said.items()]
        )
        return _Heard(pack=pack, support=said, canaries_passed=passed)

    async def _hear_again(self, heard: _Heard, doubtful: Sequence[NumberedText]) -> _Heard:
        """Repeat with the chunks in reverse order and take the mean, so that their order does not matter."""
        if len(heard.pack) < 2:
            return heard
        again = await self._ask_each(heard.pack[::-1], doubtful, "support")
        mean = {number: (p + heard.support.get(number, p)) / 2 for number, p in again.items()}
        return replace(heard, support={**heard.support, **mean})

    async def _hear_against(self, heard: _Heard, doubtful: Sequence[NumberedText]) -> _Heard:
        if self.material.judge.identity.folds_contradicted:
            return heard
        answered = [claim for claim in doubtful if claim.number in heard.support]
        return replace(heard, against=await self._ask_each(heard.pack, answered, "contradict"))

    async def _ask_each(
        self,
        pack: Pack,
        items: Sequence[NumberedText],
        question: YesNoQuestion,
        canary_claims: Sequence[CanaryClaim] = (),
    ) -> Mapping[int, float]:
        """Return P(yes) by number; items without a yes or no are left out."""
        if not items:
            return {}
        # the first one alone, so that the others find the chunks in the server's prefix cache
        first = await self._ask(pack, items[0], question, canary_claims)
        others = await together(self._ask(pack, item, question, canary_claims) for item in items[1:])
        answers = zip(items, [first, *others], strict=True)
        return {item.number: p for item, p in answers if p is not None}

    async def _ask(
        self, pack: Pack, item: NumberedText, question: YesNoQuestion, canary_claims: Sequence[CanaryClaim]
    ) -> float | None:
        def check(reply: YesProbability) -> None:
            own = [canary for canary in canary_claims if canary.number == item.number]
            check_canaries(own, [(item.number, self._is_yes(reply.p_yes))])

        try:
            reply = await self.material.judge.ask(self._request(pack, item, question, check))
        except JudgeNonsense:
            return None
        return reply.value.p_yes

    def _request(
        self, pack: Pack, item: NumberedText, question: YesNoQuestion, check: Callable[[YesProbability], None]
    ) -> JudgeRequest[YesProbability]:
        return JudgeRequest(
            step=self.step,
            system=self.prompt.text,
            user=_render(pack, item.text, question, self.material.fence_code),
            reply_type=YesProbability,
            inputs=YesNoInput(chunks=pack, claim=item.text, question=question),
            max_output_tokens=_OUTPUT_TOKENS,
            check=check,
        )

    def _is_yes(self, p: float) -> bool:
        return p >= self.material.verify.threshold

    def _ruling(self, heard: _Heard, claim: NumberedText) -> CheckedVerdict:
        p, q = heard.support.get(claim.number), heard.against.get(claim.number)
        if p is None:
            return omitted("the judge answered neither yes nor no")
        alone = {chunk.number for chunk in heard.pack}
        chunks = tuple(alone) if len(alone) == 1 else ()
        if self._is_yes(p):
            return self._supported(heard, claim, p, chunks)
        if q is None:
            # not asked since another pack supports the claim, or not answered
            return omitted("the judge said neither that the chunks contradict the claim nor that they do not")
        if q >= _EVEN:
            return CheckedVerdict(label=VerdictLabel.CONTRADICTED, chunks=chunks, confidence=(1 - p) * q)
        return CheckedVerdict(label=VerdictLabel.UNSUPPORTED, confidence=(1 - p) * (1 - q))

    def _supported(
        self, heard: _Heard, claim: NumberedText, p: float, chunks: tuple[int, ...]
    ) -> CheckedVerdict:
        """Cite the chunk that contains the claim verbatim, if there is one; this form has no quotes."""
        label = VerdictLabel.SUPPORTED
        for chunk in heard.pack:
            if quote := self.material.context.find_quote(chunk.number, claim.text.rstrip(" .")):
                return CheckedVerdict(label=label, chunks=(chunk.number,), quote=quote, confidence=p)
        return CheckedVerdict(label=label, chunks=chunks, confidence=p)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """The judge's probabilities about one pack of chunks, by claim number."""

    pack: Pack
    support: Mapping[int, float]
    against: Mapping[int, float] = field(default_factory=dict)
    canaries_passed: int


def _render(pack: Pack, claim: str, question: YesNoQuestion, code: str) -> str:
    """Put the chunks first, the same for all claims, so that servers and providers keep what they read."""
    asked = f"Do the chunks {question} the claim? Answer Yes or No."
    return "\n".join([fenced(code, [*chunk_sections(pack), ("claim", [" ".join(claim.split())])]), asked])
