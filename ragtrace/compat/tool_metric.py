"""Other tools' metrics by name, asked with their own prompts.

Their calls go to ragtrace's judge, their results become outcomes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module

from pydantic import TypeAdapter, ValidationError

from ragtrace.compat.tool import ToolCalls, ToolMetric, ToolOptions, ToolRun
from ragtrace.errors import ConfigError, JudgeError
from ragtrace.judge_steps import Prompt, PromptName
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    Compat,
    CompatStatus,
    Direction,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    SkipReason,
)
from ragtrace.ports import Judge
from ragtrace.scoring import canonical
from ragtrace.validation import in_words

PROFILES = ("ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")
"""The profiles besides ragtrace's own."""

_MODULES = ("ragas", "ragas_legacy", "deepeval", "promptfoo", "rag_evals")


def tool_named(metric: str, profile: str) -> ToolMetric:
    """Return another tool's metric by ragtrace's name or the tool's.

    Raises:
        ConfigError: no such metric or tool; the message lists the available ones.
    """
    if profile not in PROFILES:
        raise ConfigError(f"there is no profile {profile!r}: choose from {', '.join(PROFILES)}")
    there = {tool.metric: tool for tool in tool_metrics() if tool.profile == profile}
    name = metric if metric in there else canonical(metric)
    if name not in there:
        raise ConfigError(f"{profile} has no metric {metric!r}: choose from {', '.join(sorted(there))}")
    return there[name]


@cache
def tool_metrics() -> tuple[ToolMetric, ...]:
    """Return all metrics of all tools."""
    modules = (import_module(f"ragtrace.compat.{name}") for name in _MODULES)
    return tuple(metric for module in modules for metric in module.METRICS)


_ERROR_TYPES = {CompatStatus.ERROR: "peer_error", CompatStatus.GRADER_ERROR: "grader_error"}


def open_tool_metric(
    name: str, *, profile: str, options: Mapping[str, object], threshold: float | None
) -> ToolPrompted:
    """Return another tool's metric, asked with that tool's own prompts.

    Raises:
        ConfigError: the tool has no such metric or option; the message lists what there is.
    """
    return ToolPrompted(tool_named(name, profile), options=_options(name, options), threshold=threshold)


def _options(metric: str, options: Mapping[str, object]) -> ToolOptions:
    known = [field.name for field in fields(ToolOptions)]
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"{metric} has no option {unknown!r}: choose from {', '.join(known)}")
    try:
        return TypeAdapter(ToolOptions).validate_python(options)
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        key = ".".join(map(str, error["loc"]))
        raise ConfigError(f"{metric}: option {key!r}: {in_words(error)}") from None


class ToolPrompted:
    """Measures with another tool's own calls: its order, JSON fields and text formats."""

    uses = ()
    """It uses no built-in judge steps."""
    pass_when = None

    def __init__(
        self, tool: ToolMetric, *, options: ToolOptions | None = None, threshold: float | None = None
    ) -> None:
        self._tool = tool
        self._options = options or ToolOptions()
        self.name, self.profile = tool.metric, tool.profile
        self.needs, self.direction = tool.needs, tool.direction
        self.prompts: Mapping[PromptName, Prompt] = {}
        self.threshold = _threshold(tool, self._options) if threshold is None else threshold

    @property
    def version(self) -> str:
        """Changes whenever the same replies could give another score."""
        weights = self._options.weights
        given = f"{self._options!r} {sorted(weights.items())}" if weights else repr(self._options)
        return f"1-peer-{hashlib.sha256(given.encode()).hexdigest()[:8]}"

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricOutcome:
        """Score the record like the tool. If the tool raises or reports an error, return a failure."""
        key = f"{self.name}.{self.profile}.{self.version}"

        async def run(judge: Judge) -> ToolRun:
            return await self._tool.run(record, ToolCalls(judge, steps), self._options)

        try:
            outcome = self._outcome(await steps.shared(key, run), steps)
        except JudgeError as failed:
            outcome = self._judge_failed(failed, steps)
        # `calls` counts judge calls: the tools do not count embeddings
        return replace(outcome, usage=replace(steps.spent_here, calls=steps.spent_on(key).calls))

    def _outcome(self, run: ToolRun, steps: StepSession) -> MetricOutcome:
        compat = Compat(status=run.status, score=run.score)
        if run.status in _ERROR_TYPES:
            error_type = run.error_type or _ERROR_TYPES[run.status]
            return self._failure(error_type, run.explanation, compat, steps)
        reason = _why_no_score(compat)
        return MetricResult(
            metric=self.name,
            profile=self.profile,
            score=None if reason else run.score,
            threshold=self.threshold,
            direction=self.direction,
            evaluator_version=steps.version_of(self),
            skip_reason=reason,
            explanation=run.explanation,
            verdicts=run.verdicts,
            chunk_verdicts=run.chunk_verdicts,
            reason=run.reason,
            intermediate=run.intermediate,
            details=run.details,
            compat=compat,
        )

    def _judge_failed(self, failed: JudgeError, steps: StepSession) -> MetricFailure:
        failure = self._failure(failed.error_type, str(failed), _report_of_failure(self._tool), steps)
        return replace(failure, retryable=failed.retryable)

    def _failure(self, error_type: str, message: str, compat: Compat, steps: StepSession) -> MetricFailure:
        return MetricFailure(
            metric=self.name,
            profile=self.profile,
            error_type=error_type,
            message=message,
            evaluator_version=steps.version_of(self),
            compat=compat,
        )


def _report_of_failure(tool: ToolMetric) -> Compat:
    """Return the tool's report if its model is unreachable; most tools raise."""
    if tool.profile == "promptfoo":
        return Compat(status=CompatStatus.GRADER_ERROR, score=0.0)
    if tool.profile.startswith("ragas") and tool.metric in ("context_relevance", "groundedness"):
        return Compat(status=CompatStatus.NAN)
    return Compat(status=CompatStatus.ERROR)


def _why_no_score(compat: Compat) -> SkipReason | None:
    if compat.status is CompatStatus.NAN or compat.score is None:
        return SkipReason.TOOL_NAN
    return None if 0 <= compat.score <= 1 else SkipReason.OUT_OF_RANGE


def _threshold(tool: ToolMetric, options: ToolOptions) -> float:
    if not (options.strict_mode and tool.profile.startswith("deepeval")):
        return tool.threshold
    return 1.0 if tool.direction is Direction.HIGHER_IS_BETTER else 0.0
