"""Step K: ask whether the answer meets criteria, as many as there are in one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ragtrace.judge_forms import CriteriaInput, CriteriaReply, GivenCriterion, NumberedText
from ragtrace.metrics._evidence import FoldedText
from ragtrace.metrics.asking import ItemReplies, ask_items, batches, output_tokens, together
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.steps.step import Material, Step, numbered_section
from ragtrace.model import OF_CRITERION, Claim, Verdict, VerdictLabel


async def check_criteria(material: Material, criteria: Sequence[str]) -> Mapping[str, Verdict]:
    """Ask whether the answer meets each of these criteria."""
    shown = material.sentences
    answer = (material.record.answer or "")[: shown[-1].end] if shown else ""
    numbered = [NumberedText(number=number, text=text) for number, text in enumerate(criteria, start=1)]
    ask, cut_off = partial(_ask, material, answer), ItemReplies[GivenCriterion].cut_off
    calls = batches(numbered, material.limits.claims_per_call)
    answers = await together(ask_items(call, ask, cut_off) for call in calls)
    folded = FoldedText(answer)
    return {item.text: _verdict(item, answers, folded) for item in numbered}


async def _ask(
    material: Material,
    answer: str,
    criteria: Sequence[NumberedText],
    answered: Sequence[NumberedText],
    again: bool,
) -> ItemReplies[GivenCriterion]:
    given = CriteriaInput(criteria=tuple(criteria), question=material.record.question, answer=answer)
    reply = await material.judge.ask(CRITERIA.request(given, material, again=again))
    found = ((each.id, each) for each in reply.value.criteria)
    return ItemReplies.check(found, asked=criteria, abstained=reply.abstained, notes=reply.notes)


def _render(given: CriteriaInput, code: str) -> str:
    """Put the criteria, which are the operator's words, first and outside of the fence."""
    name, lines = numbered_section("criteria", given.criteria)
    question = [("question", [given.question])] if given.question else []
    return "\n".join([f"{name}:", *lines, fenced(code, [*question, ("answer", [given.answer])])])


CRITERIA: Final = Step(
    name="criteria",
    prompts=("criteria",),
    reply=CriteriaReply,
    render=_render,
    output_tokens=lambda given: output_tokens([criterion.text for criterion in given.criteria]),
    items="criteria",
    run=partial(check_criteria, criteria=()),
)


def _verdict(
    item: NumberedText, answers: Sequence[ItemReplies[GivenCriterion]], answer: FoldedText
) -> Verdict:
    claim = Claim(index=item.number - 1, text=item.text, kind=OF_CRITERION)
    for replies in answers:
        if found := replies.found.get(item.number):
            quote = answer.find(found.quote)
            return Verdict(
                claim=claim,
                label=VerdictLabel.MET if found.met else VerdictLabel.NOT_MET,
                reason=found.reason.strip() or None,
                quote=quote,
                quote_verified=quote is not None,
            )
    reason = next(replies.given_up[item.number] for replies in answers if item.number in replies.given_up)
    omitted = any(item.number in replies.omitted for replies in answers)
    return Verdict(claim=claim, label=VerdictLabel.UNJUDGED, reason=reason, omitted=omitted)
