"""What verdicts add up to: every answer once, failures never as a score, in bounded memory."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ragtrace.answers.summary import AnswerSummary, MetricSummary
from ragtrace.model import Label
from ragtrace.stats import Weighed, weighted_mean
from ragtrace_collector.operations.metrics import SelfMetrics
from ragtrace_collector.telemetry import scores as table
from ragtrace_collector.telemetry.scores import ScoreMetric, Scores
from tests.unit.answers.rows import NOON_NS, a_row


class FixedClock:
    """Tells one time."""

    def now_ns(self) -> int:
        return NOON_NS


def scores(**options: object) -> Scores:
    return Scores(clock=FixedClock(), **options)  # type: ignore[arg-type]


def noted(*answers: AnswerSummary, **options: object) -> Scores:
    found = scores(**options)
    for answer in answers:
        found.note(answer, span_id=answer.carrier_span_id)
    return found


def total(found: Scores, metric: ScoreMetric, **wanted: str) -> float:
    """Return the sum of the series that have these values."""
    names = [name.replace(".", "_") for name in found.attributes(metric)]
    series = found.sums[metric]
    return sum(
        amount
        for labels, amount in series.items()
        if wanted.items() <= dict(zip(names, labels, strict=True)).items()
    )


async def page(found: Scores, accept: str = "") -> str:
    async def nothing() -> dict[str, object]:
        return {}

    metrics = SelfMetrics(nothing, push_to=None, scores=found)  # type: ignore[arg-type]
    text, _ = await metrics.page(accept)
    await metrics.aclose()
    return text.decode()


def test_what_failed_or_was_skipped_is_no_score() -> None:
    failed = MetricSummary(name="faithfulness", label=Label.ERROR, score=None)
    found = noted(
        a_row(1, 1.0),
        a_row(2, metrics=(failed,), label=Label.ERROR, reason="judge_timeout"),
        a_row(3, None, label=Label.SKIPPED, reason="no_claims"),
    )
    assert sum(sum(histogram.counts) for histogram in found.histograms[table.SCORE].values()) == 1
    assert total(found, table.RESULTS, ragtrace_evaluation_reason="judge_timeout") == 1
    assert total(found, table.RESULTS, ragtrace_evaluation_reason="no_claims") == 1
    assert total(found, table.RESULTS) == 3


def test_a_later_evaluation_of_an_answer_counts_as_revised_alone() -> None:
    found = noted(a_row(1, 1.0), a_row(1, 0.0, carrier=7, supersedes=1_000_001))
    assert total(found, table.REVISED) == 1
    assert total(found, table.RESULTS) == 1


def test_the_sums_give_the_mean_and_the_variance_of_the_library() -> None:
    drawn = [(number % 11 / 10, (1.0, 0.5, 0.1)[number % 3]) for number in range(60)]
    found = noted(
        a_row(99, 1.0, probability=None),  # of no known weight
        *(a_row(number, score, probability=chance) for number, (score, chance) in enumerate(drawn)),
    )
    assert total(found, table.UNWEIGHTED) == 1
    assert sum(sum(histogram.counts) for histogram in found.histograms[table.SCORE].values()) == 61
    weight = sum(sum(histogram.counts) for histogram in found.histograms[table.WEIGHTED].values())
    mean = sum(histogram.total for histogram in found.histograms[table.WEIGHTED].values()) / weight
    expected = weighted_mean([Weighed(score, chance, str(at)) for at, (score, chance) in enumerate(drawn)])
    assert expected is not None
    assert mean == pytest.approx(expected.mean)
    squares, product, weights = (
        total(found, metric) for metric in (table.SCORE_SQUARED, table.SCORE_PRODUCT, table.WEIGHT_SQUARED)
    )
    exact = sum(((score - mean) / chance) ** 2 for score, chance in drawn)
    assert squares - 2 * mean * product + mean**2 * weights == pytest.approx(exact)


async def test_invented_models_without_number_fill_nothing() -> None:
    found = noted(*(a_row(n, 0.5, model=f"model {n}") for n in range(2_000)), most_values=50)
    assert len(found.histograms[table.SCORE]) == 51
    assert total(found, table.RESULTS, gen_ai_request_model="other") == 1_950
    assert total(found, table.RESULTS) == 2_000
    assert 'gen_ai_request_model="other"' in await page(found)


async def test_a_scrape_has_buckets_and_in_openmetrics_the_trace_of_a_score() -> None:
    found = noted(a_row(1, 0.5, tenant="acme"), a_row(2, 0.42, tenant="acme"))
    families = {family.name: family for family in text_string_to_metric_families(await page(found))}
    buckets = {
        sample.labels["le"]: sample.value
        for sample in families["ragtrace_evaluation_score"].samples
        if sample.name.endswith("_bucket") and sample.labels["gen_ai_evaluation_score_label"] == "fail"
    }
    assert (buckets["0.4"], buckets["0.45"], buckets["+Inf"]) == (0, 1, 1)
    text = await page(found, "application/openmetrics-text; version=1.0.0")
    assert f'# {{span_id="{1_000_001:016x}",trace_id="{1:032x}"}} 0.5' in text
