"""Sums of the valid rows by hour and by day, in whole numbers, so that what is taken away leaves no trace.

A mean from a sample needs sums over traces, whose answers are sampled together (`ragtrace.stats`): of the
weights of its answers, of their weighted scores, and of the products of these two. So the effect of an answer
on the sums is the difference between its trace with it and without it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ragtrace.answers.index._rows import SCORES, IndexedMetric, IndexRow, metric_in, metrics_in
from ragtrace.answers.index._words import QuadrantMetrics

DAY: Final = 24
SPANS: Final = (1, DAY)
"""Hours that a sum is over."""
UNIT: Final = 2**20
"""Weights and their products are kept in these parts."""
LIMB: Final = 2**30
"""Products are kept as two numbers, because the sum of many would not fit into 64 bits."""
LOWEST_PROBABILITY: Final = 1e-6
"""A lower sampling probability counts as this one."""

_PASS, _FAIL = 0, 1


class TraceSums(NamedTuple):
    """The weights of one trace's answers, and weighted scores and passes."""

    weight: float = 0.0
    score: float = 0.0
    passing: float = 0.0

    def plus(self, weight: float, metric: IndexedMetric) -> TraceSums:
        """Add an answer."""
        score = (metric.score or 0) / SCORES
        return TraceSums(
            self.weight + weight,
            self.score + weight * score,
            self.passing + weight * (metric.label == _PASS),
        )

    def products(self) -> list[int]:
        """Return the products of pairs, each in two numbers."""
        pairs = (
            self.weight * self.weight,
            self.weight * self.score,
            self.score * self.score,
            self.weight * self.passing,
            self.passing * self.passing,
        )
        return [limb for product in pairs for limb in divmod(round(product * UNIT), LIMB)]


def count(
    db: sqlite3.Connection, row: IndexRow, mates: Sequence[IndexRow], pair: QuadrantMetrics, *, sign: int
) -> None:
    """Add a valid row to the sums, or with the sign -1 take it away.

    ``mates`` are the other valid rows of its trace that are summed together with it.
    """
    metrics = list(metrics_in(row.metrics))
    amounts_of_row = _signed([*_of_answer(row), *_quadrant(row, metrics, pair)], sign)
    alone = {metric: _signed(_of_metric(row, metric, ()), sign) for metric in metrics}
    of_metrics = []
    for hours in SPANS:
        first_hour = row.hour - row.hour % hours
        _change(db, "answer_sums", [(hours, first_hour, row.stream, *amounts_of_row)])
        words = [(hours, word, first_hour, row.stream, sign) for word in (row.blame, row.reason) if word]
        _change(db, "answer_word_sums", words)
        near = [mate for mate in mates if mate.stream == row.stream and _same(mate, first_hour, hours)]
        for metric in metrics:
            beside = _signed(_of_metric(row, metric, near), sign) if near else None
            of_metrics.append((hours, metric.metric, first_hour, row.stream, *(beside or alone[metric])))
    _change(db, "answer_metric_sums", of_metrics)


def _same(mate: IndexRow, first_hour: int, hours: int) -> bool:
    return first_hour <= mate.hour < first_hour + hours


def _of_answer(row: IndexRow) -> Iterator[int]:
    yield 1
    yield from (int(row.label == number) for number in range(4))
    yield from (row.supported, row.contradicted, row.unsupported, row.unjudged)
    yield from (row.relevant, row.partly_relevant, row.irrelevant, row.unjudged_chunks)


def _quadrant(row: IndexRow, metrics: Sequence[IndexedMetric], pair: QuadrantMetrics) -> list[int]:
    """Return one of healthy, generation problem, retrieval noise and failure as 1, then cost and unpriced."""
    fields = [0, 0, 0, 0]
    found = {metric.metric: metric.label for metric in metrics if metric.label in (_PASS, _FAIL)}
    if pair.chunk_precision in found and pair.faithfulness in found:
        fields[2 * (found[pair.chunk_precision] == _FAIL) + (found[pair.faithfulness] == _FAIL)] = 1
    return [*fields, row.cost or 0, int(row.cost is None)]


def _signed(amounts: list[int], sign: int) -> list[int]:
    return amounts if sign == 1 else [sign * amount for amount in amounts]


def is_scored(metric: IndexedMetric) -> bool:
    """Return whether means count it."""
    return metric.score is not None and metric.label in (_PASS, _FAIL)


def weight_of(row: IndexRow) -> float | None:
    """Return one over the sampling probability; ``None`` if it is unknown."""
    return None if row.probability is None else 1 / max(row.probability, LOWEST_PROBABILITY)


def _of_metric(row: IndexRow, metric: IndexedMetric, mates: Sequence[IndexRow]) -> list[int]:
    labels = [int(metric.label == number) for number in range(4)]
    weight = weight_of(row)
    if not is_scored(metric) or weight is None:
        return [1, *labels, 0, int(is_scored(metric)), *[0] * 13]
    alone = TraceSums().plus(weight, metric)
    products = alone.products()
    if mates:
        without = _summed(mates, metric.metric).products()
        together = _summed([*mates, row], metric.metric).products()
        products = [after - before for after, before in zip(together, without, strict=True)]
    return [1, *labels, 1, 0, *(round(amount * UNIT) for amount in alone), *products]


def _summed(rows: Sequence[IndexRow], number: int) -> TraceSums:
    sums = TraceSums()
    for row in sorted(rows, key=lambda row: row.carrier):  # the same rounding, whatever came first
        metric, weight = metric_in(row.metrics, number), weight_of(row)
        if metric is not None and weight is not None and is_scored(metric):
            sums = sums.plus(weight, metric)
    return sums


def _change(db: sqlite3.Connection, table: str, rows: Sequence[tuple[int, ...]]) -> None:
    """Add amounts, which follow the keys of each row; the first is the number of answers."""
    keys, _ = _COLUMNS[table]
    if not rows:
        return
    db.executemany(_UPSERTS[table], rows)
    gone = [row[: len(keys)] for row in rows if row[len(keys)] < 0]
    if gone:
        where = " AND ".join(f"{key} = ?" for key in keys)
        db.executemany(f"DELETE FROM {table} WHERE {where} AND answers = 0", gone)


METRIC_SUMS: Final = (
    *("answers", "passed", "failed", "error", "skipped", "weighed", "left_out", "weight", "score", "pass"),
    *("weight_weight", "weight_weight_low", "weight_score", "weight_score_low"),
    *("score_score", "score_score_low", "weight_pass", "weight_pass_low", "pass_pass", "pass_pass_low"),
)
SUMS: Final = (
    *("answers", "passed", "failed", "error", "skipped"),
    *("supported", "contradicted", "unsupported", "unjudged"),
    *("relevant", "partly_relevant", "irrelevant", "unjudged_chunks"),
    *("healthy", "generation_problem", "retrieval_noise", "retrieval_failure", "cost", "unpriced"),
)
_COLUMNS: Final = {
    "answer_sums": (("hours", "first_hour", "stream"), SUMS),
    "answer_word_sums": (("hours", "word", "first_hour", "stream"), ("answers",)),
    "answer_metric_sums": (("hours", "metric", "first_hour", "stream"), METRIC_SUMS),
}


def _upsert(table: str) -> str:
    keys, names = _COLUMNS[table]
    values = ", ".join("?" for _ in (*keys, *names))
    changes = ", ".join(f"{name} = {name} + excluded.{name}" for name in names)
    return (
        f"INSERT INTO {table} ({', '.join((*keys, *names))}) VALUES ({values})"
        f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
    )


_UPSERTS: Final = {table: _upsert(table) for table in _COLUMNS}
