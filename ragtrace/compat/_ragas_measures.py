"""The common part of RAGAS' collections and legacy metrics: the requests and their order.

They differ in how they request and parse a reply; a ``MeasureRun`` does that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.compat import _ragas_prompts as prompts
from ragtrace.compat._material import contexts_of
from ragtrace.compat._ragas_readings import claims_run, nodes_run, ratings_run, recall_run
from ragtrace.compat._ragas_replies import (
    Classifications,
    JudgedStatements,
    RagasUnreadable,
    Statements,
    Usefulness,
)
from ragtrace.compat.tool import ToolCalls, ToolMetric, ToolOptions, ToolRun
from ragtrace.model import CompatStatus, Direction, Part, RagRecord

FormT = TypeVar("FormT", bound=BaseModel)


class MeasureRun(Protocol):
    """A run of a metric: sends its requests and parses the replies."""

    @property
    def profile(self) -> str:
        """The profile whose rules apply."""

    async def ask(self, step: str, prompt: str, form: type[FormT]) -> FormT:
        """Ask for a reply of the form.

        Raises:
            RagasUnreadable: the reply does not have the form.
        """

    async def rating(self, step: str, prompt: str) -> int | None:
        """Ask one of two judges; ``None`` if no try gave a rating."""


AskingT = TypeVar("AskingT", bound=MeasureRun)
Measure: TypeAlias = Callable[[RagRecord, AskingT], Awaitable[ToolRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RagasRules(Generic[AskingT]):
    """The differences between the two."""

    profile: str
    asking: Callable[[ToolCalls, ToolOptions], AskingT]
    missing: Callable[[RagRecord, tuple[Part, ...]], str]
    """Names the missing parts for which RAGAS refuses a sample; empty if none."""
    answer_relevance: Measure[AskingT]
    groundedness: Measure[AskingT]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RagasMetric(Generic[AskingT]):
    metric: str
    measure: Measure[AskingT]
    needs: tuple[Part, ...]
    rules: RagasRules[AskingT]
    profile: str
    direction: Direction = Direction.HIGHER_IS_BETTER
    threshold: float = 0.5
    without_reference: ToolMetric | None = None
    """The metric for records without a reference."""

    async def run(self, record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
        """Measure the record like RAGAS, with sequential calls."""
        missing = self.rules.missing(record, self.needs)
        if missing == Part.REFERENCE and self.without_reference is not None:
            run = await self.without_reference.run(record, calls, options)
            why = f"{self.without_reference.metric}: judged by the answer, since there is no reference"
            return replace(run, explanation=f"{run.explanation}; {why}")
        if missing:
            return ToolRun.lacking(f"ragas refuses a sample without {missing}")
        try:
            return await self.measure(record, self.rules.asking(calls, options))
        except RagasUnreadable as exc:
            return ToolRun.failed(str(exc))


def ragas_metrics(rules: RagasRules[AskingT]) -> tuple[ToolMetric, ...]:
    """Return the metrics under these rules."""
    question, answer, context, reference = Part.QUESTION, Part.ANSWER, Part.CONTEXT, Part.REFERENCE
    measures: tuple[tuple[str, Measure[AskingT], tuple[Part, ...]], ...] = (
        ("faithfulness", _faithfulness, (question, answer, context)),
        ("answer_relevance", rules.answer_relevance, (question, answer)),
        (
            "context_precision",
            partial(_context_precision, compared_with="reference"),
            (question, context, reference),
        ),
        (
            "context_utilization",
            partial(_context_precision, compared_with="answer"),
            (question, context, answer),
        ),
        ("context_recall", _context_recall, (question, context, reference)),
        ("context_relevance", _context_relevance, (question, context)),
        ("groundedness", rules.groundedness, (answer, context)),
    )
    made = {
        metric: _RagasMetric(metric=metric, measure=measure, needs=needs, rules=rules, profile=rules.profile)
        for metric, measure, needs in measures
    }
    precision = replace(made["context_precision"], without_reference=made["context_utilization"])
    return tuple((made | {"context_precision": precision}).values())


def context_of(record: RagRecord) -> str:
    """Return all contexts as in RAGAS' prompts."""
    return "\n".join(contexts_of(record))


def immediate_score(score: float, explanation: str) -> ToolRun:
    """Return a score that needs no call."""
    return ToolRun(
        status=CompatStatus.OK, score=score, explanation=f"{explanation}: ragas scores that {score:g}"
    )


async def _faithfulness(record: RagRecord, asking: MeasureRun) -> ToolRun:
    prompt = prompts.statements(record.question or "", record.answer or "")
    stated = (await asking.ask("statements", prompt, Statements)).statements
    if not stated:
        return claims_run(asking.profile, stated, ())
    prompt = prompts.verdicts(context_of(record), stated)
    judged = (await asking.ask("verdicts", prompt, JudgedStatements)).statements
    return claims_run(asking.profile, stated, judged)


async def _context_precision(
    record: RagRecord, asking: MeasureRun, compared_with: Literal["reference", "answer"]
) -> ToolRun:
    answer = (record.reference if compared_with == "reference" else record.answer) or ""
    verdicts = [
        await asking.ask(
            "ctx_verdict", prompts.usefulness(record.question or "", context, answer), Usefulness
        )
        for context in contexts_of(record)
    ]
    return nodes_run(asking.profile, record, verdicts)


async def _context_recall(record: RagRecord, asking: MeasureRun) -> ToolRun:
    prompt = prompts.recall(record.question or "", context_of(record), record.reference or "")
    return recall_run(asking.profile, (await asking.ask("recall", prompt, Classifications)).classifications)


async def _context_relevance(record: RagRecord, asking: MeasureRun) -> ToolRun:
    question, context = record.question or "", context_of(record)
    if not question.strip() or context.strip() in question.strip():
        return immediate_score(0.0, "the question holds the whole context, or one of them is blank")
    first = await asking.rating("relevance1", prompts.worth_of_context(question, context))
    second = await asking.rating("relevance2", prompts.worth_of_context_again(question, context))
    return ratings_run(asking.profile, "context_relevance", (first, second))
