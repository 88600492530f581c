"""Reports: files with the judged answers, for people and for programs; only the owner can read them."""

from __future__ import annotations

import base64
import hashlib
import heapq
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from ragtrace import __version__
from ragtrace.answers.rows import ROW_FIELDS, SCHEMA_VERSION, answer_row
from ragtrace.answers.shown import FILTERS, SKIP_MEANINGS, shown_answer
from ragtrace.answers.summary import facts_of, summary_of_judged
from ragtrace.errors import ConfigError
from ragtrace.extras import install_command
from ragtrace.files import PendingFile, open_private, sync_folder
from ragtrace.model import (
    Direction,
    JudgedAnswer,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Status,
    Usage,
    VerdictLabel,
    outcome_of,
)
from ragtrace.stats import RunningMean, Weighed, WeightedMean
from ragtrace.text import one_json_line, spreadsheet_line

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The description of a run, known before it begins."""

    source: str
    """The source of the answers, without secrets."""
    judge: str
    metrics: tuple[str, ...]
    """The metrics with their pass rules."""
    began_at_ns: int
    """Unix time in nanoseconds."""
    selection: Mapping[str, str] = field(default_factory=dict)
    """The options of the run."""
    second_judge: str | None = None
    prices_as_of: str = ""
    """The date of the prices."""
    trace_url: str | None = None
    """The URL template of a trace's page, with ``{trace_id}`` and ``{span_id}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedAnswers:
    """Answers or traces that reports only count."""

    what: str
    """``sampled out``, ``already evaluated``, …"""
    number: int
    unit: str
    """``answer``, ``trace``, ``carrier``, ``window``."""
    why: str
    """A one-sentence description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run, with the skipped answers."""

    cut_short: str | None = None
    """Why it ended early, as a clause: ``it was stopped``."""
    left_out: tuple[SkippedAnswers, ...] = ()


@dataclass(slots=True, kw_only=True)
class MetricTally:
    """Counts of one metric's outcomes, which add up to the number of records."""

    metric: str
    records: int = 0
    score_sum: float = 0.0
    labels: Counter[Label] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    claims: Counter[VerdictLabel] = field(default_factory=Counter)
    chunks: Counter[VerdictLabel] = field(default_factory=Counter)
    calls: int = 0
    """Usage of the metric's steps; metrics share steps."""
    direction: Direction = Direction.HIGHER_IS_BETTER
    pass_when: str | None = None
    """The pass rule, if it is known."""

    @property
    def scored(self) -> int:
        """The denominator of the mean."""
        return self.labels[Label.PASS] + self.labels[Label.FAIL]

    @property
    def mean(self) -> float | None:
        """The mean of the scores; ``None`` if there are none."""
        return self.score_sum / self.scored if self.scored else None

    def reaches(self, score: float) -> bool:
        """Return whether the mean is at least this good; if lower is better, at most 1 - score."""
        if self.mean is None:
            return False
        is_higher_better = self.direction is Direction.HIGHER_IS_BETTER
        return round((self.mean if is_higher_better else 1 - self.mean) - score, 9) >= 0

    def add(self, outcome: MetricOutcome) -> None:
        """Count one outcome."""
        self.records += 1
        self.labels[outcome.label] += 1
        self.calls += outcome.usage.calls
        if isinstance(outcome, MetricFailure):
            self.errors[outcome.error_type] += 1
            return
        self.direction = outcome.direction
        self.claims.update(verdict.label for verdict in outcome.verdicts)
        self.chunks.update(verdict.label for verdict in outcome.chunk_verdicts)
        if outcome.score is None:
            self.skipped[str(outcome.skip_reason)] += 1
        else:
            self.score_sum += outcome.score


def open_template(name: str, **filters: Callable[..., str]) -> Template:
    """Open a template by its path in the package; values are escaped.

    Raises:
        ModuleNotFoundError: Jinja2 is not installed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    style = files("ragtrace.reports").joinpath("page.css").read_text("utf-8")
    environment = Environment(
        loader=PackageLoader("ragtrace", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    environment.globals |= {
        "style": style,
        "style_sha256": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "ragtrace_version": __version__,
    }
    return environment.get_template(name)


class AppendedReport:
    """A report that grows by the complete rows of each answer, which stay even if the run is interrupted.

    Rows of earlier runs stay in front. A row that a crash truncated is removed.
    """

    def __init__(
        self,
        path: Path,
        rows: Callable[[JudgedAnswer], bytes],
        *,
        head: bytes = b"",
        starts_with: bytes,
        is_quoted: bool,
    ) -> None:
        """Open it.

        ``head`` is written into an empty file; every file of this format begins with ``starts_with``.
        ``is_quoted``: a row may contain line breaks between quotation marks.

        Raises:
            ConfigError: it cannot be written, or has other content.
        """
        self.path = path
        self._rows = rows
        self._head = head
        try:
            self._descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
        except OSError as exc:
            raise _unwritable(path, exc) from exc
        with open(self._descriptor, "rb", closefd=False) as file:
            start = file.read(len(starts_with))
            if not starts_with.startswith(start):
                os.close(self._descriptor)
                raise ConfigError(f"{str(path)!r} exists and is no such report: name another file")
            file.seek(0)
            whole = _whole_until(file, is_quoted=is_quoted)
        self._is_empty = whole == 0
        if start:
            os.ftruncate(self._descriptor, whole)

    def add(self, answer: JudgedAnswer) -> None:
        """Write the complete rows of an answer, or nothing."""
        self._append(self._rows(answer))

    def _append(self, row: bytes) -> None:
        before = os.fstat(self._descriptor).st_size
        rest = memoryview(self._head + row if self._is_empty else row)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise
        self._is_empty = False

    def close(self, ending: RunEnd) -> None:
        """Flush the file to disk, and close it."""
        try:
            if self._is_empty:
                self._append(b"")
            os.fsync(self._descriptor)
            sync_folder(self.path.parent)
        finally:
            os.close(self._descriptor)

    def abandon(self) -> None:
        """Close the file, and delete it if nothing was written."""
        if not os.fstat(self._descriptor).st_size:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _replaced_file(path: Path) -> PendingFile:
    try:
        return PendingFile(path)
    except OSError as exc:
        raise _unwritable(path, exc) from exc


def _unwritable(path: Path, exc: OSError) -> ConfigError:
    return ConfigError(f"the report {str(path)!r} cannot be written: {exc.strerror or exc}")


def _whole_until(file: BinaryIO, *, is_quoted: bool) -> int:
    """Return the end of the last complete row."""
    whole = position = marks = 0
    for line in file:
        position += len(line)
        marks += line.count(b'"') if is_quoted else 0
        if line.endswith(b"\n") and marks % 2 == 0:
            whole = position
    return whole


_OF_ANSWER: Final = (
    *("version", "record_id", "trace_id", "span_id", "tenant", "carrier_span_id", "service", "time", "model"),
    *("prompt_version", "session"),
)
_OF_METRIC: Final = (
    *("metric", "profile", "label", "score", "threshold", "pass_when", "direction", "skip_reason"),
    *("error_type", "explanation", "diagnosis", "evaluator_version"),
)
_LABELS: Final = tuple(label.value for label in VerdictLabel)
COLUMNS: Final = (
    *_OF_ANSWER,
    *(*_OF_METRIC, "judge", "calls", "input_tokens", "output_tokens", *_LABELS, "blame", "sample_rule"),
    *("sample_rate", "sample_probability", "question", "answer", "reference", "chunk_ids"),
)


def _json_row(answer: JudgedAnswer) -> bytes:
    return f"{one_json_line(answer_row(answer))}\n".encode()


def _csv_rows(answer: JudgedAnswer) -> bytes:
    record, facts, rows = answer.record, facts_of(summary_of_judged(answer)), b""
    for outcome in answer.evaluation.outcomes:
        verdicts = (*getattr(outcome, "verdicts", ()), *getattr(outcome, "chunk_verdicts", ()))
        labels = [verdict.label for verdict in verdicts]
        cells: Mapping[str, Any] = {
            **facts,
            "version": SCHEMA_VERSION,
            "record_id": record.id,
            **{name: getattr(outcome, name, None) for name in _OF_METRIC},
            "explanation": getattr(outcome, "message", None) or getattr(outcome, "explanation", None),
            "judge": (getattr(outcome, "judge", None) or answer.evaluation.judge).name,
            "calls": outcome.usage.calls,
            "input_tokens": outcome.usage.input_tokens,
            "output_tokens": outcome.usage.output_tokens,
            **{label: labels.count(VerdictLabel(label)) for label in _LABELS},
            "sample_rate": answer.sample.rate if answer.sample else None,
            "question": record.question,
            "answer": record.answer,
            "reference": record.reference,
            "chunk_ids": " ".join(chunk.id for chunk in record.chunks),
        }
        rows += spreadsheet_line([cells[name] for name in COLUMNS])
    return rows


_MOST_ROWS: Final = 1_000
_MOST_CHARS: Final = 8_000_000
"""A row group is written at either limit, so that memory does not grow with the run."""
_MOMENTS: Final = ("time", "judged_at")
_NUMBERS: Final = ("sample_probability", "suspicion", "cost_usd")


class ParquetReport:
    """Parquet: a typed row per answer, with its metrics and all of it as JSON."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ModuleNotFoundError as exc:
            raise ConfigError(
                f"a report like {str(path)!r} needs pyarrow, which is not installed: "
                f"{install_command('parquet')}, or write .jsonl"
            ) from exc
        self.path = path
        self._batch_of = pa.RecordBatch.from_pylist
        self._file = _replaced_file(path)
        types = {
            **dict.fromkeys(_MOMENTS, pa.timestamp("us", tz="UTC")),
            **dict.fromkeys(_NUMBERS, pa.float64()),
            "version": pa.int64(),
        }
        self._schema = pa.schema(
            [
                (name, pa.int64() if name.startswith("claims_") else types.get(name, pa.string()))
                for name in ROW_FIELDS
            ]
        )
        self._writer = parquet.ParquetWriter(self._file.file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._chars = 0

    def add(self, answer: JudgedAnswer) -> None:
        """Add a row; write a row group if there are enough."""
        row = answer_row(answer)
        row |= {name: datetime.fromisoformat(row[name]) for name in _MOMENTS}
        row |= {name: one_json_line(row[name]) for name in ("metrics", "judged")}
        self._rows.append(row)
        self._chars += len(row["judged"])
        if len(self._rows) >= _MOST_ROWS or self._chars >= _MOST_CHARS:
            self._write()

    def close(self, ending: RunEnd) -> None:
        """Write the remaining rows, and the run's end as ``ragtrace.report`` in the file's metadata."""
        self._write()
        metadata = {
            "version": SCHEMA_VERSION,
            "cut_short": ending.cut_short,
            "left_out": {skipped.what: skipped.number for skipped in ending.left_out},
        }
        self._writer.add_key_value_metadata({"ragtrace.report": one_json_line(metadata)})
        self._writer.close()
        self._file.commit()

    def abandon(self) -> None:
        """Keep the earlier file."""
        with suppress(OSError):  # the disk may be the cause
            self._writer.close()
        self._file.abandon()

    def _write(self) -> None:
        if self._rows:
            self._writer.write_batch(self._batch_of(self._rows, schema=self._schema))
        self._rows, self._chars = [], 0


WORST: Final = 50


class PageReport:
    """Counts, keeps the worst answers, and writes the page at the end."""

    def __init__(self, path: Path, about: RunInfo, *, worst: int = WORST) -> None:
        self.path = path
        self._about = about
        self._totals = Totals()
        self._most = worst
        self._worst: list[tuple[_Badness, JudgedAnswer]] = []
        self._file = _replaced_file(path)

    def add(self, answer: JudgedAnswer) -> None:
        self._totals.add(answer)
        badness = _badness(answer, self._totals.answers)
        if self._most and badness is not None:
            keep = heapq.heappush if len(self._worst) < self._most else heapq.heappushpop
            keep(self._worst, (badness, answer))

    def close(self, ending: RunEnd) -> None:
        page = open_template("reports/page.html", **FILTERS).render(
            about=self._about,
            ending=ending,
            totals=self._totals,
            metrics=list(self._totals.metrics.values()),
            worst=[
                (rank, _trace_url(self._about.trace_url, answer), shown_answer(answer))
                for rank, (_, answer) in enumerate(
                    sorted(self._worst, key=itemgetter(0), reverse=True), start=1
                )
            ],
            meanings=SKIP_MEANINGS,
            Status=Status,
        )
        self._file.file.write(page.encode("utf-8", "replace"))
        self._file.commit()

    def abandon(self) -> None:
        """Keep the earlier file."""
        self._file.abandon()


def _trace_url(template: str | None, answer: JudgedAnswer) -> str | None:
    target = answer.record.target
    if template is None or target is None:
        return None
    url = template.replace("{trace_id}", quote(target.trace_id, safe=""))
    return url.replace("{span_id}", quote(target.span_id, safe=""))


BINS: Final = 10


@dataclass(slots=True, kw_only=True)
class ScoreBin:
    """Answers with similar scores."""

    low: float
    high: float
    """Excluded, except in the last bin."""
    answers: int = 0
    weight: float = 0.0
    """How many answers they stand for."""


class MetricTotals:
    """A metric's totals over all answers."""

    def __init__(self, outcome: MetricOutcome) -> None:
        own = outcome.profile == "ragtrace"
        self.tally = MetricTally(metric=outcome.metric if own else f"{outcome.metric}.{outcome.profile}")
        self.threshold: float | None = None
        self.pass_when: str | None = None
        self.bins = [ScoreBin(low=at / BINS, high=(at + 1) / BINS) for at in range(BINS)]
        """The scores of answers of known probability."""
        self._mean = RunningMean()
        self._passing = RunningMean()

    def add(self, outcome: MetricOutcome, answer: JudgedAnswer) -> None:
        self.tally.add(outcome)
        if not isinstance(outcome, MetricResult) or outcome.score is None:
            return
        self.threshold, self.pass_when = outcome.threshold, outcome.pass_when
        probability, cluster = answer.probability, answer.cluster
        self._mean.add(Weighed(outcome.score, probability, cluster))
        self._passing.add(Weighed(float(outcome.label is Label.PASS), probability, cluster))
        if probability is not None:
            found = self.bins[min(BINS - 1, int(outcome.score * BINS))]
            found.answers += 1
            found.weight += 1 / probability

    @property
    def mean(self) -> WeightedMean | None:
        """The mean of the scores; ``None`` without any."""
        return self._mean.estimate()

    @property
    def passing(self) -> WeightedMean | None:
        """The share that passes; ``None`` without a score."""
        return self._passing.estimate()

    @property
    def lower_is_better(self) -> bool:
        return self.tally.direction is Direction.LOWER_IS_BETTER


class Totals:
    """The totals over all answers."""

    def __init__(self) -> None:
        self.statuses: Counter[Status] = Counter()
        self.reasons: dict[Status, Counter[str]] = {status: Counter() for status in Status}
        self.metrics: dict[tuple[str, str], MetricTotals] = {}
        self.usage = Usage()
        self.cost_usd = 0.0
        self.unpriced = 0
        """Number of answers with unknown cost."""
        self.is_sample = False
        """Whether some answers represent others that were sampled out."""

    @property
    def answers(self) -> int:
        return self.statuses.total()

    def add(self, answer: JudgedAnswer) -> None:
        status, reason = outcome_of(answer.evaluation)
        self.statuses[status] += 1
        if reason is not None:
            self.reasons[status][reason] += 1
        self.usage += answer.evaluation.usage
        self.cost_usd += answer.cost_usd or 0.0
        self.unpriced += answer.cost_usd is None
        self.is_sample = self.is_sample or answer.probability != 1.0
        for outcome in answer.evaluation.outcomes:
            key = (outcome.metric, outcome.profile)
            if key not in self.metrics:
                self.metrics[key] = MetricTotals(outcome)
            self.metrics[key].add(outcome, answer)


class _Badness(NamedTuple):
    lack: float
    """The largest distance of a metric from its best score."""
    contradicted: int
    unsupported: int
    earliness: int
    """Unique, so that answers themselves are never compared."""


def _badness(answer: JudgedAnswer, number: int) -> _Badness | None:
    lacks = [
        1 - result.score if result.direction is Direction.HIGHER_IS_BETTER else result.score
        for result in answer.evaluation.results
        if result.score is not None
    ]
    labels = [verdict.label for result in answer.evaluation.results for verdict in result.verdicts]
    if not lacks or not any(lacks):
        return None
    return _Badness(
        lack=max(lacks),
        contradicted=labels.count(VerdictLabel.CONTRADICTED),
        unsupported=labels.count(VerdictLabel.UNSUPPORTED),
        earliness=-number,
    )


Report: TypeAlias = AppendedReport | PageReport | ParquetReport
"""A file with the judged answers: ``add`` each, then ``close`` it; ``abandon`` keeps an earlier one.

``add`` and ``close`` raise OSError if the file cannot be written.
"""
SUFFIXES: Final = (".html", ".jsonl", ".csv", ".parquet")


def open_report(path: str | Path, about: RunInfo, *, worst: int = WORST) -> Report:
    """Open a report: ``.html``, ``.jsonl``, ``.csv`` or ``.parquet``.

    JSON lines and CSV files grow with each answer, after the rows of earlier runs. A page or Parquet file
    replaces an earlier one when it is closed. ``worst``: the number of answers on a page.

    Raises:
        ConfigError: the suffix is none of these, the file cannot be written, or a library is not installed.
    """
    path = Path(path)
    match path.suffix.lower():
        case ".html":
            return PageReport(path, about, worst=worst)
        case ".jsonl":
            start = f'{{"version": {SCHEMA_VERSION}, '.encode()
            return AppendedReport(path, _json_row, starts_with=start, is_quoted=False)
        case ".csv":
            head = "\ufeff".encode() + spreadsheet_line(
                COLUMNS
            )  # the mark by which spreadsheets recognize UTF-8
            return AppendedReport(path, _csv_rows, head=head, starts_with=head, is_quoted=True)
        case ".parquet":
            return ParquetReport(path)
        case _:
            raise ConfigError(f"{path.name!r} is no report: use a name that ends with {', '.join(SUFFIXES)}")
