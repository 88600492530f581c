"""Step R: ask for the relevance of each statement of an answer to the question.

Asking for it in step A would save a call but costs accuracy (ADR 0004).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ragtrace.judge_forms import GivenRelevance, NumberedText, Relevance, RelevanceInput, RelevanceReply
from ragtrace.judge_steps import Statement
from ragtrace.metrics.asking import ItemReplies, ask_items, batches, output_tokens, together
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.steps.step import Material, Step, numbered_section
from ragtrace.model import Verdict, VerdictLabel

_LABELS: Mapping[Relevance, VerdictLabel] = {
    "direct": VerdictLabel.RELEVANT,
    "supporting": VerdictLabel.PARTLY_RELEVANT,
    "irrelevant": VerdictLabel.IRRELEVANT,
}


async def grade_statements(material: Material) -> tuple[Verdict, ...]:
    """Ask for the relevance of each statement."""
    statements = (await material.extraction()).statements
    numbered = [
        NumberedText(number=statement.claim.index + 1, text=statement.claim.text) for statement in statements
    ]
    ask, cut_off = partial(_ask, material), ItemReplies[GivenRelevance].cut_off
    calls = batches(numbered, material.limits.statements_per_call)
    answers = await together(ask_items(call, ask, cut_off) for call in calls)
    return tuple(_graded(statement, answers) for statement in statements)


async def _ask(
    material: Material, statements: Sequence[NumberedText], answered: Sequence[NumberedText], again: bool
) -> ItemReplies[GivenRelevance]:
    given = RelevanceInput(question=material.record.question or "", statements=tuple(statements))
    reply = await material.judge.ask(RELEVANCE.request(given, material, again=again))
    grades = ((grade.id, grade) for grade in reply.value.statements)
    return ItemReplies.check(grades, asked=statements, abstained=reply.abstained, notes=reply.notes)


def _render(given: RelevanceInput, code: str) -> str:
    return fenced(code, [("question", [given.question]), numbered_section("statements", given.statements)])


RELEVANCE: Final = Step(
    name="relevance",
    prompts=("relevance",),
    after=("extract",),
    reply=RelevanceReply,
    render=_render,
    output_tokens=lambda given: output_tokens([""] * len(given.statements)),
    items="statements",
    run=grade_statements,
)


def _graded(statement: Statement, answers: Sequence[ItemReplies[GivenRelevance]]) -> Verdict:
    number = statement.claim.index + 1
    for answer in answers:
        if number in answer.found:
            return Verdict(claim=statement.claim, label=_LABELS[answer.found[number].relevance])
    reason = next(answer.given_up[number] for answer in answers if number in answer.given_up)
    omitted = any(number in answer.omitted for answer in answers)
    return Verdict(claim=statement.claim, label=VerdictLabel.UNJUDGED, reason=reason, omitted=omitted)
