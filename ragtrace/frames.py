"""Evaluation in one call: `evaluate_records` of a frame of pandas or polars, or of a list; `evaluate_sync`.

Neither library is a dependency: a frame is told by the module of its type.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload

from ragtrace._row_fields import RECORD_FIELDS
from ragtrace._row_files import RowNotices, read_row, table_rows, tell_unknown
from ragtrace.errors import InputError
from ragtrace.judge import open_embedder, open_judge
from ragtrace.metrics import metric_named
from ragtrace.model import Evaluation, MetricFailure, MetricOutcome, MetricResult, RagRecord, VerdictLabel
from ragtrace.pipeline import evaluate, map_in_order
from ragtrace.ports import Embedder, Judge, Metric
from ragtrace.process import wait_for
from ragtrace.records import RecordReader, RecordRow

if TYPE_CHECKING:
    from rich.progress import Progress

FrameT = TypeVar("FrameT")
P = ParamSpec("P")
T = TypeVar("T")

_SOURCE: Final = "the records"
_ERROR: Final = "ragtrace_error"
_WRONG: Final = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.NOT_MET,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordResult:
    """What became of one row of a list."""

    record: RagRecord | None
    evaluation: Evaluation | None
    error: str = ""
    """Why the row is no record; then it has neither."""


@overload
def evaluate_records(
    records: Sequence[Mapping[str, Any] | RagRecord],
    *,
    metrics: Sequence[Metric | str] = ...,
    judge: Judge | str = ...,
    embedder: Embedder | str | None = ...,
    concurrency: int = ...,
    progress: bool | None = ...,
) -> list[RecordResult]: ...
@overload
def evaluate_records(
    records: FrameT,
    *,
    metrics: Sequence[Metric | str] = ...,
    judge: Judge | str = ...,
    embedder: Embedder | str | None = ...,
    concurrency: int = ...,
    progress: bool | None = ...,
) -> FrameT: ...
def evaluate_records(
    records: Any,
    *,
    metrics: Sequence[Metric | str] = ("faithfulness",),
    judge: Judge | str = "lexical",
    embedder: Embedder | str | None = None,
    concurrency: int = 8,
    progress: bool | None = None,
) -> Any:
    """Evaluate the rows of a frame and return the frame with columns of the results.

    Works inside a running event loop too, as in Jupyter.

    Args:
        records: A frame of pandas or polars with the columns of a record under the usual names, ``question``,
            ``contexts``, ``answer``, ``reference``, or those of other tools. Or a list of mappings,
            `RagRecord`s or samples of other tools, a data set of Hugging Face, RAGAS or DeepEval, or a
            mapping of columns: then the result is a list of `RecordResult`.
        metrics: Metrics or their names.
        judge: A judge or its name, opened once for all rows.
        embedder: For metrics that compare embeddings.
        concurrency: How many rows are judged at once.
        progress: Show a progress bar on stderr; by default if a person sees it.

    Returns:
        The frame with four columns a metric: ``faithfulness`` (the score, or missing), ``faithfulness_label``
        (``pass``, ``fail``, ``skipped``, ``error``), ``faithfulness_explanation`` and
        ``faithfulness_wrong_claims`` (a list of strings). And ``ragtrace_error``: why a row is no record,
        which stops nothing.

    Raises:
        InputError: it is no frame and no list, or has a column with the name of a result.
        ConfigError: no metric or judge has that name, or the judge lacks a setting.
    """
    return wait_for(_evaluated(records, metrics, judge, embedder, concurrency=concurrency, progress=progress))


async def _evaluated(
    records: Any,
    metrics: Sequence[Metric | str],
    judge: Judge | str,
    embedder: Embedder | str | None,
    *,
    concurrency: int,
    progress: bool | None,
) -> Any:
    chosen = [metric_named(metric) if isinstance(metric, str) else metric for metric in metrics]
    kind, rows = _rows_of(records)
    if kind:
        _check_columns(records, _columns(chosen))
    async with AsyncExitStack() as opened:
        opened_judge = open_judge(judge) if isinstance(judge, str) else None
        if opened_judge:
            await opened.enter_async_context(aclosing(opened_judge))
        opened_embedder = open_embedder(embedder) if isinstance(embedder, str) else None
        if opened_embedder:
            await opened.enter_async_context(aclosing(opened_embedder))
        run = partial(
            evaluate, metrics=chosen, judge=opened_judge or judge, embedder=opened_embedder or embedder
        )
        results = await _judged(rows, run, concurrency=concurrency, progress=progress)
    return _with_columns(kind, records, _cells(chosen, results)) if kind else results


async def _judged(
    rows: Sequence[Any],
    run: Callable[[RagRecord], Awaitable[Evaluation]],
    *,
    concurrency: int,
    progress: bool | None,
) -> list[RecordResult]:
    results: list[RecordResult] = []

    async def work(item: RagRecord | InputError) -> RecordResult:
        if isinstance(item, InputError):
            return RecordResult(record=None, evaluation=None, error=str(item))
        return RecordResult(record=item, evaluation=await run(item))

    with _bar(len(rows), wanted=progress) as tick:

        async def emit(result: RecordResult) -> None:
            results.append(result)
            tick()

        await map_in_order(_records_in(rows), work, emit, concurrency=concurrency)
    return results


def _rows_of(records: Any) -> tuple[str, Sequence[Any]]:
    """Return ``pandas``, ``polars`` or nothing for a list, and the rows."""
    kind = type(records).__module__.partition(".")[0]
    if kind == "polars" and hasattr(records, "collect"):
        raise InputError(f"{_SOURCE} are a lazy frame: call `.collect()` first")
    if kind == "polars" and hasattr(records, "to_dicts"):
        return kind, records.to_dicts()
    if kind == "pandas" and hasattr(records, "to_dict"):
        return kind, records.to_dict("records")
    if hasattr(records, "to_pylist"):  # a table of pyarrow
        return "", records.to_pylist()
    rows = table_rows(records, _SOURCE, RECORD_FIELDS.is_known)
    if rows is not None:
        return "", rows
    held = getattr(records, "test_cases", records)  # DeepEval's data set is no iterable
    if isinstance(held, Iterable) and not isinstance(held, str | bytes | Mapping):
        return "", list(held)
    raise InputError(
        f"{_SOURCE} are a {type(records).__name__}: give a frame of pandas or polars, or a list of mappings"
    )


class _Warnings(RowNotices):
    """Warns about ignored columns."""

    def row_refused(self, fault: InputError) -> None:
        """Rows are refused one by one, in the result."""

    def fields_ignored(self, warning: str) -> None:
        """Warn."""
        warnings.warn(warning, stacklevel=2)


async def _records_in(rows: Sequence[Any]) -> AsyncGenerator[RagRecord | InputError, None]:
    reader, seen = RecordReader(), set[str]()
    for number, content in enumerate(rows, start=1):
        if isinstance(content, RagRecord):
            yield content
            continue
        try:
            row = read_row(content, RecordRow, RECORD_FIELDS, name=_SOURCE, place=f"row {number}")
            tell_unknown(row, RECORD_FIELDS, _Warnings(), seen)
            record = reader.record(row)
        except InputError as fault:
            yield fault
        else:
            yield record


def _key(of: Metric | MetricOutcome) -> str:
    metric = of.metric if isinstance(of, MetricResult | MetricFailure) else of.name
    return metric if of.profile == "ragtrace" else f"{metric}.{of.profile}"


def _columns(metrics: Sequence[Metric]) -> list[str]:
    suffixes = ("", "_label", "_explanation", "_wrong_claims")
    return [*(f"{_key(metric)}{suffix}" for metric in metrics for suffix in suffixes), _ERROR]


def _check_columns(frame: Any, added: Sequence[str]) -> None:
    if taken := [name for name in added if name in set(map(str, frame.columns))]:
        raise InputError(f"the frame has a column `{taken[0]}` already: rename or drop it")


def _cells(metrics: Sequence[Metric], results: Sequence[RecordResult]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in _columns(metrics)}
    for result in results:
        outcomes = (
            {_key(outcome): outcome for outcome in result.evaluation.outcomes} if result.evaluation else {}
        )
        for metric in metrics:
            key = _key(metric)
            for suffix, value in _of_outcome(outcomes.get(key)).items():
                columns[f"{key}{suffix}"].append(value)
        columns[_ERROR].append(result.error or None)
    return columns


def _of_outcome(outcome: MetricOutcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"": None, "_label": None, "_explanation": None, "_wrong_claims": None}
    if isinstance(outcome, MetricFailure):
        return {"": None, "_label": "error", "_explanation": outcome.message, "_wrong_claims": None}
    wrong = [verdict.claim.text for verdict in outcome.verdicts if verdict.label in _WRONG]
    said = ": ".join(text for text in (outcome.explanation, outcome.reason) if text)
    return {
        "": outcome.score,
        "_label": outcome.label.value,
        "_explanation": said,
        "_wrong_claims": wrong if outcome.verdicts else None,
    }


def _with_columns(kind: str, frame: Any, columns: Mapping[str, list[Any]]) -> Any:
    library = sys.modules[kind]
    if kind == "polars":
        return frame.with_columns([_polars_series(library, name, cells) for name, cells in columns.items()])
    return frame.assign(
        **{
            name: library.Series(cells, index=frame.index, dtype=_pandas_type(name, columns))
            for name, cells in columns.items()
        }
    )


def _pandas_type(name: str, columns: Mapping[str, list[Any]]) -> str:
    return "float64" if f"{name}_label" in columns else "object"


def _polars_series(polars: Any, name: str, cells: list[Any]) -> Any:
    if name.endswith("_wrong_claims"):
        return polars.Series(name, cells, dtype=polars.List(polars.String))
    is_score = name != _ERROR and not name.endswith(("_label", "_explanation"))
    return polars.Series(name, cells, dtype=polars.Float64 if is_score else polars.String)


@contextmanager
def _bar(total: int, *, wanted: bool | None) -> Iterator[Any]:
    """Show a progress bar, and yield what moves it by one row."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted) or not total:
        yield lambda: None
        return
    from rich.progress import Progress

    bar: Progress
    with Progress(console=console) as bar:
        task = bar.add_task("judging", total=total)
        yield lambda: bar.advance(task)


def _waiting(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @wraps(work)
    def run(*args: P.args, **given: P.kwargs) -> T:
        return wait_for(work(*args, **given))

    return run


evaluate_sync = _waiting(evaluate)
"""Runs `evaluate` and waits for the result. Works inside a running event loop too, as in Jupyter."""
