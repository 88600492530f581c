"""Step R: ask for the relevance of each statement of an answer to the question.

Asking for it in step A would save a call but costs accuracy (ADR 0004).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ragtrace.judge_forms import GivenRelevance, NumberedText, Relevance, RelevanceInput, RelevanceReply
from ragtrace.metrics.ask_items import ItemReplies, ask_items
from ragtrace.metrics.judge_calls import batches, output_tokens, together
from ragtrace.metrics.prompt import Prompt, render_relevance
from ragtrace.metrics.steps.extract import Statement
from ragtrace.model import Verdict, VerdictLabel
from ragtrace.ports import Judge, JudgeRequest

_LABELS: Mapping[Relevance, VerdictLabel] = {
    "direct": VerdictLabel.RELEVANT,
    "supporting": VerdictLabel.PARTLY_RELEVANT,
    "irrelevant": VerdictLabel.IRRELEVANT,
}


async def grade_statements(
    statements: Sequence[Statement],
    *,
    question: str,
    judge: Judge,
    prompt: Prompt,
    fence_code: str,
    statements_per_call: int,
) -> tuple[Verdict, ...]:
    """Ask for the relevance of each statement.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    asking = _Asking(question=question, judge=judge, prompt=prompt, fence_code=fence_code)
    numbered = [
        NumberedText(number=statement.claim.index + 1, text=statement.claim.text) for statement in statements
    ]
    calls = batches(numbered, statements_per_call)
    answers = await together(ask_items(call, asking.ask) for call in calls)
    return tuple(_graded(statement, answers) for statement in statements)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """The common part of all calls."""

    question: str
    judge: Judge
    prompt: Prompt
    fence_code: str

    async def ask(self, statements: Sequence[NumberedText]) -> ItemReplies[GivenRelevance]:
        reply = await self.judge.ask(self._request(statements))
        given = ((grade.id, grade) for grade in reply.value.statements)
        return ItemReplies.check(given, asked=statements, abstained=reply.abstained, notes=reply.notes)

    def _request(self, statements: Sequence[NumberedText]) -> JudgeRequest[RelevanceReply]:
        def about(numbers: Collection[int]) -> JudgeRequest[RelevanceReply]:
            return self._request([statement for statement in statements if statement.number in numbers])

        given = RelevanceInput(question=self.question, statements=tuple(statements))
        return JudgeRequest(
            step="relevance",
            system=self.prompt.text,
            user=render_relevance(given, self.fence_code),
            reply_type=RelevanceReply,
            inputs=given,
            max_output_tokens=output_tokens([""] * len(statements)),
            items={statement.number: statement.text for statement in statements},
            about=about,
        )


def _graded(statement: Statement, answers: Sequence[ItemReplies[GivenRelevance]]) -> Verdict:
    number = statement.claim.index + 1
    for answer in answers:
        if number in answer.found:
            return Verdict(claim=statement.claim, label=_LABELS[answer.found[number].relevance])
    reason = next(answer.given_up[number] for answer in answers if number in answer.given_up)
    omitted = any(number in answer.omitted for answer in answers)
    return Verdict(claim=statement.claim, label=VerdictLabel.UNJUDGED, reason=reason, omitted=omitted)
