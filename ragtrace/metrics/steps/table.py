"""The table of judge steps, in their order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

from ragtrace.judge_steps import PromptName, StepName
from ragtrace.metrics.steps.chunks import CHUNKS
from ragtrace.metrics.steps.criteria import CRITERIA
from ragtrace.metrics.steps.extract import EXTRACT
from ragtrace.metrics.steps.questions import QUESTIONS
from ragtrace.metrics.steps.relevance import RELEVANCE
from ragtrace.metrics.steps.step import Step
from ragtrace.metrics.steps.truths import TRUTHS
from ragtrace.metrics.steps.verify import RECALL, VERIFY

STEPS: Final[Mapping[StepName, Step[Any, Any, Any]]] = {
    step.name: step for step in (EXTRACT, RELEVANCE, TRUTHS, VERIFY, CHUNKS, RECALL, QUESTIONS, CRITERIA)
}


def prompts_of(steps: Collection[str]) -> tuple[PromptName, ...]:
    """Return the names of the prompts that these steps may use, in the order of the steps."""
    return _prompts_of(frozenset(steps))


@cache
def _prompts_of(steps: frozenset[str]) -> tuple[PromptName, ...]:
    used = (step for step in STEPS.values() if step.name in steps)
    return tuple(dict.fromkeys(name for step in used for name in step.prompts))
