"""Verdicts as JSON: many claims per call, with label, chunk numbers and quote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ragtrace.judge_forms import GivenVerdict, NumberedText, VerifyInput, VerifyReply
from ragtrace.judge_steps import Prompt, Verification
from ragtrace.metrics._canaries import CanaryClaim, CanaryClaims, check_canaries
from ragtrace.metrics._verdicts import CheckedVerdict, CheckedVerdicts, checked_verdicts, combine
from ragtrace.metrics.ask_items import ItemQuestion, ItemReplies, ask_items
from ragtrace.metrics.judge_calls import batches, together
from ragtrace.metrics.steps.step import Material, Step
from ragtrace.model import DecidedBy, VerdictLabel
from ragtrace.ports import JudgeRequest

Pack: TypeAlias = Sequence[NumberedText]
VerifyStep: TypeAlias = Step[VerifyInput, VerifyReply, Verification]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonVerifier:
    """Requests verdicts in batches of claims."""

    step: VerifyStep
    material: Material
    canaries: CanaryClaims
    prompt: Prompt
    again: Prompt | None
    """The prompt of the second look at claims that are not supported; ``None`` for no second look."""

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
        size = self.material.limits.claims_per_call
        asked = [(pack, batch) for pack in packs for batch in batches(claims, size)]
        replies = await together(ask_items(batch, self._question(pack)) for pack, batch in asked)
        checked = [self._checked(pack, reply) for (pack, _), reply in zip(asked, replies, strict=True)]
        given = {c.number: [found[c.number] for found in checked if c.number in found] for c in claims}
        return CheckedVerdicts(
            rulings={number: combine(rulings) for number, rulings in given.items()},
            rejected=sum(reply.rejected for reply in replies),
            canaries_passed=sum(reply.canaries_passed for reply in replies),
        )

    def _question(self, pack: Pack) -> ItemQuestion[NumberedText, ItemReplies[GivenVerdict]]:
        ask, cut_off = partial(self._ask, pack), ItemReplies[GivenVerdict].cut_off
        return ItemQuestion(ask=ask, cut_off=cut_off)

    def _checked(self, pack: Pack, replies: ItemReplies[GivenVerdict]) -> Mapping[int, CheckedVerdict]:
        shown = {chunk.number for chunk in pack}
        return checked_verdicts(replies, shown=shown, find_quote=self.material.context.find_quote)

    async def _ask(
        self, pack: Pack, claims: Sequence[NumberedText], answered: Sequence[NumberedText], again: bool
    ) -> ItemReplies[GivenVerdict]:
        canary_claims = self.canaries.among(pack)
        reply = await self.material.judge.ask(self._request(pack, claims, canary_claims, again))
        if all(reply.decided_by.get(claim.number) is DecidedBy.SCREEN for claim in claims):
            canary_claims = ()  # nobody was asked about them
        canaries = {canary.number for canary in canary_claims}
        checked = ItemReplies.check(
            ((given.id, given) for given in reply.value.verdicts),
            asked=claims,
            abstained=reply.abstained,
            notes=reply.notes,
            canaries=canaries,
        )
        if checked.missing(claims) and not (again and canaries.difference(reply.value.ids)):
            return checked
        return replace(
            checked,
            canaries_passed=check_canaries(canary_claims, _supported(reply.value)),
            support=reply.support,
            decided_by=reply.decided_by,
        )

    def _request(
        self, pack: Pack, claims: Sequence[NumberedText], canary_claims: tuple[CanaryClaim, ...], again: bool
    ) -> JudgeRequest[VerifyReply]:
        given = VerifyInput(chunks=tuple(pack), claims=self.canaries.weave(claims, canary_claims))

        def about(numbers: Collection[int]) -> JudgeRequest[VerifyReply]:
            kept = [claim for claim in claims if claim.number in numbers]
            return self._request(pack, kept, canary_claims if kept else (), again)

        def check(reply: VerifyReply) -> None:
            check_canaries(canary_claims, _supported(reply))

        return self.step.request(
            given, self.material, prompt=self.prompt, items=claims, about=about, check=check, again=again
        )


_DOUBTFUL = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)


def _supported(reply: VerifyReply) -> list[tuple[int, bool]]:
    return [(given.id, given.label == "supported") for given in reply.verdicts]
