"""Assertions for CI gates: an answer must reach its scores, or the test reports what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ragtrace.metrics import metric_named
from ragtrace.model import (
    ChunkVerdict,
    Evaluation,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import Embedder, Judge, Metric
from ragtrace.sync import evaluate_sync

_GOOD: Final = (VerdictLabel.SUPPORTED, VerdictLabel.RELEVANT, VerdictLabel.MET)
_MOST_SHOWN: Final = 10
_CHUNK_CHARS: Final = 100


def assert_metrics(
    record: RagRecord,
    *,
    judge: Judge | str,
    metrics: Sequence[Metric | str] = (),
    allow_skipped: bool = False,
    embedder: Embedder | str | None = None,
    second_judge: Judge | str | None = None,
    **thresholds: float,
) -> Evaluation:
    """Assert that an answer reaches the threshold of each metric, and return the evaluation.

    Name metrics by keyword with their threshold (``faithfulness=0.8``), or pass them in ``metrics`` with
    their own threshold. The assertion also fails if the judge fails or a metric had nothing to judge (unless
    ``allow_skipped``): a gate that measured nothing must not pass.

    Example:
        ```python
        assert_metrics(record, judge="openai:gpt-4o-mini", faithfulness=0.8, context_precision=0.5)
        ```

    Raises:
        AssertionError: names the metrics that failed, their scores, and the claims and chunks at fault.
        ConfigError: there is no metric or judge of that name, or a setting of the judge is missing.
    """
    __tracebackhide__ = True  # pytest: show the test, not this function
    named = [metric_named(name, threshold=threshold) for name, threshold in thresholds.items()]
    if not (metrics or named):
        raise TypeError("no metric is named: write faithfulness=0.8, for example")
    evaluation = evaluate_sync(
        record,
        metrics=[*metrics, *named],
        judge=judge,
        embedder=embedder,
        second_judge=second_judge,
    )
    bad = [outcome for outcome in evaluation.outcomes if not _is_good(outcome, allow_skipped)]
    if bad:
        raise AssertionError("\n".join(_report(bad, evaluation, record)))
    return evaluation


def assert_faithful(
    record: RagRecord, *, judge: Judge | str, threshold: float = 1.0, allow_skipped: bool = False
) -> Evaluation:
    """Assert that the context supports at least this share of an answer's claims, by default all.

    Raises:
        AssertionError: names the claims that it does not support, and the chunks that contradict them.
        ConfigError: there is no judge of that name, or a setting is missing.
    """
    __tracebackhide__ = True  # pytest: show the test, not this function
    return assert_metrics(record, judge=judge, allow_skipped=allow_skipped, faithfulness=threshold)


def _is_good(outcome: MetricOutcome, allow_skipped: bool) -> bool:
    return outcome.label is Label.PASS or (allow_skipped and outcome.label is Label.SKIPPED)


def _report(bad: Sequence[MetricOutcome], evaluation: Evaluation, record: RagRecord) -> Iterator[str]:
    judge = evaluation.judge.name
    yield f"record {record.id} fails {len(bad)} of {len(evaluation.outcomes)} metrics (judge {judge})"
    for outcome in bad:
        yield f"{outcome.metric}: {_verdict_on(outcome)}"
        if isinstance(outcome, MetricResult):
            yield from _evidence(outcome, record)


def _verdict_on(outcome: MetricOutcome) -> str:
    if isinstance(outcome, MetricFailure):
        return f"error {outcome.error_type}: {outcome.message}"
    if outcome.score is None:
        why = f"{outcome.skip_reason}: {outcome.explanation}".removesuffix(": ")
        return f"not measured, {why} (allow_skipped=True lets this pass)"
    if outcome.threshold is None:
        return f"{outcome.score:.3f}, passes when {outcome.pass_when}; {outcome.explanation}".rstrip("; ")
    return outcome.explanation


def _evidence(result: MetricResult, record: RagRecord) -> Iterator[str]:
    claims = [verdict for verdict in result.verdicts if verdict.label not in _GOOD]
    chunks = [chunk_verdict for chunk_verdict in result.chunk_verdicts if chunk_verdict.label not in _GOOD]
    for claim in islice(claims, _MOST_SHOWN):
        yield from _about_claim(claim)
    for chunk in islice(chunks, _MOST_SHOWN):
        yield from _about_chunk(chunk, record)
    if (more := max(len(claims), len(chunks)) - _MOST_SHOWN) > 0:
        yield f"  … and {more} more"


def _about_claim(verdict: Verdict) -> Iterator[str]:
    yield f"  {verdict.label.replace('_', ' ')}: {_plain(verdict.claim.text)}"
    chunks = ", ".join(verdict.chunk_ids)
    if verdict.quote is not None:
        yield f"    {chunks or 'answer'}: “{_plain(verdict.quote)}”"
    elif chunks:
        yield f"    {chunks} (without a quote that could be found there)"
    if verdict.reason:
        yield f"    {_plain(verdict.reason)}"


def _about_chunk(verdict: ChunkVerdict, record: RagRecord) -> Iterator[str]:
    text = next((chunk.text for chunk in record.chunks if chunk.id == verdict.chunk_id), None)
    shown = _plain(text or "")
    shown = shown if len(shown) <= _CHUNK_CHARS else f"{shown[:_CHUNK_CHARS]}…"
    yield f"  {verdict.label}: chunk {verdict.rank + 1}, {verdict.chunk_id}: {shown}"
    if verdict.reason:
        yield f"    {_plain(verdict.reason)}"


def _plain(text: str) -> str:
    """Put a text on one line, without terminal control characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))
