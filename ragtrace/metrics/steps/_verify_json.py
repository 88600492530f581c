"""Verdicts as JSON: many claims per call, with label, chunk numbers and quote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.judge_forms import NumberedText, VerifyInput, VerifyReply
from ragtrace.metrics._canaries import CanaryClaim, check_canaries
from ragtrace.metrics._context import Material
from ragtrace.metrics._verdicts import CheckedReply, CheckedVerdicts, check_reply, combine, omitted
from ragtrace.metrics.judge_calls import batches, halves, output_tokens, together
from ragtrace.metrics.prompt import Prompt, render_verify
from ragtrace.model import VerdictLabel
from ragtrace.ports import JudgeRequest

Pack = Sequence[NumberedText]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonVerifier:
    """Requests verdicts in batches of claims."""

    material: Material
    prompt: Prompt
    again: Prompt | None
    """The prompt of the second look at claims that are not supported; ``None`` for no second look."""
    claims_per_call: int

    async def rule(self, claims: Sequence[NumberedText]) -> CheckedVerdicts:
        """Return a verdict on every claim.

        Raises:
            JudgeError: the judge gave no usable answer.
            JudgeCompromised: it failed a canary claim.
        """
        found = await self.rule_once(claims, self.material.context.packs)
        doubtful = [claim for claim in claims if found.rulings[claim.number].label in _DOUBTFUL]
        if self.again is None or not doubtful:
            return found
        looking_again = replace(self, prompt=self.again, again=None)
        reordered = [tuple(reversed(pack)) for pack in self.material.context.packs]
        return found.corrected_by(await looking_again.rule_once(doubtful, reordered))

    async def rule_once(self, claims: Sequence[NumberedText], packs: Iterable[Pack]) -> CheckedVerdicts:
        """Return a verdict on every claim, without a second look."""
        replies = await together(
            self._rule_batch(pack, batch) for pack in packs for batch in batches(claims, self.claims_per_call)
        )
        given = {c.number: [r.rulings[c.number] for r in replies if c.number in r.rulings] for c in claims}
        return CheckedVerdicts(
            rulings={number: combine(rulings) for number, rulings in given.items()},
            rejected=sum(reply.rejected for reply in replies),
            canaries_passed=sum(reply.canaries_passed for reply in replies),
            canaries_silent=sum(reply.canaries_silent for reply in replies),
        )

    async def _rule_batch(self, pack: Pack, claims: Sequence[NumberedText]) -> CheckedReply:
        """Return a verdict on every claim; ask once more about missing and repeated ones."""
        first = await self._ask(pack, claims)
        if not first.unanswered:
            return first
        again = [claim for claim in claims if claim.number in first.unanswered]
        try:
            second = await self._ask(pack, again)
        except JudgeNonsense:
            return first.without_unanswered("asked again, the judge gave no usable reply")
        return first.joined(second).without_unanswered(
            "the judge gave no verdict, or several, and asked again as well"
        )

    async def _ask(self, pack: Pack, claims: Sequence[NumberedText]) -> CheckedReply:
        canary_claims = self.material.canaries.among(pack)
        try:
            reply = await self.material.judge.ask(self._request(pack, claims, canary_claims))
        except JudgeCutOff:
            if len(claims) == 1:
                raise
            return await self._ask_in_halves(pack, claims)
        passed = check_canaries(canary_claims, _supported(reply.value))
        checked = check_reply(
            reply.value,
            asked=[claim.number for claim in claims],
            canary_claims={canary.number for canary in canary_claims},
            abstained={number: reply.notes.get(number, "the judge abstained") for number in reply.abstained},
            shown={chunk.number for chunk in pack},
            find_quote=self.material.context.find_quote,
        )
        return replace(checked, canaries_passed=passed, canaries_silent=len(canary_claims) - passed)

    async def _ask_in_halves(self, pack: Pack, claims: Sequence[NumberedText]) -> CheckedReply:
        replies: list[CheckedReply] = []
        for half in halves(claims):
            try:
                replies.append(await self._ask(pack, half))
            except JudgeCutOff as exc:
                cut_off = exc
        if not replies:
            raise cut_off
        answered = replies[0].joined(replies[1]) if len(replies) == 2 else replies[0]
        lost = {claim.number: omitted("the judge's reply was cut off") for claim in claims}
        return replace(answered, rulings={**lost, **answered.rulings})

    def _request(
        self, pack: Pack, claims: Sequence[NumberedText], canary_claims: tuple[CanaryClaim, ...]
    ) -> JudgeRequest[VerifyReply]:
        woven = self.material.canaries.weave(claims, canary_claims)
        given = VerifyInput(chunks=tuple(pack), claims=woven)

        def about(numbers: Collection[int]) -> JudgeRequest[VerifyReply]:
            kept = [claim for claim in claims if claim.number in numbers]
            return self._request(pack, kept, canary_claims if kept else ())

        def check(reply: VerifyReply) -> None:
            check_canaries(canary_claims, _supported(reply))

        return JudgeRequest(
            step=self.material.step,
            system=self.prompt.text,
            user=render_verify(given, self.material.fence_code),
            reply_type=VerifyReply,
            inputs=given,
            max_output_tokens=output_tokens([claim.text for claim in woven]),
            items={claim.number: claim.text for claim in claims},
            about=about,
            check=check,
        )


_DOUBTFUL = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)


def _supported(reply: VerifyReply) -> list[tuple[int, bool]]:
    return [(given.id, given.label == "supported") for given in reply.verdicts]
