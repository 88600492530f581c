"""The PromQL of means, pass rates and intervals, run by promtool over sums whose estimates are known."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ragtrace_collector.telemetry.scores import (
    PASS_SQUARED,
    SCORE_PRODUCT,
    SCORE_SQUARED,
    WEIGHT_SQUARED,
    WEIGHTED,
)
from tests.dashboards.asked import filled
from tests.dashboards.estimates import MEAN, PASS_RATE, Estimate
from tests.dashboards.series import label
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

VALUES = {"service": ".*", "model": ".*", "prompt_version": ".*", "tenant": ".*", "metric": "faithfulness"}
MINUTES = 5


class Judged(NamedTuple):
    """A judged answer."""

    score: float
    passes: bool
    probability: float


CASES: Sequence[Sequence[Judged]] = (
    (
        *([Judged(1.0, True, 0.1)] * 8),
        *([Judged(0.5, False, 1.0)] * 6),
        *([Judged(0.0, False, 0.5)] * 4),
        Judged(0.8, True, 0.2),
    ),
    [Judged(0.0, False, 0.5)] * 6,
    [Judged(0.7, True, 0.1)],
)


def expected(values: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return low, mean and high of (value, weight) pairs by the formulas of textbooks, one step at a time."""
    total = sum(weight for _, weight in values)
    mean = sum(value * weight for value, weight in values) / total
    variance = sum((weight * (value - mean)) ** 2 for value, weight in values) / total**2
    size = total**2 / sum(weight**2 for _, weight in values)
    z2 = 1.96**2
    center, half = mean + z2 / (2 * size), 1.96 * math.sqrt(variance + z2 / (4 * size**2))
    return (center - half) / (1 + z2 / size), mean, (center + half) / (1 + z2 / size)


@pytest.mark.parametrize("estimate", [MEAN, PASS_RATE], ids=["mean", "pass rate"])
def test_an_estimate_is_what_the_formulas_say(estimate: Estimate, tmp_path: Path) -> None:
    asked = (estimate.end("-"), estimate.value(), estimate.end("+"))
    for answers in CASES:
        values = [
            (float(found.passes) if estimate.of_passes else found.score, 1 / found.probability)
            for found in answers
        ]
        low, mean, high = expected(values)
        assert 0 <= low <= mean <= high <= 1
        assert high - low > 0.1  # few answers never look sure
        promtool(tmp_path, sums(answers), zip(asked, (low, mean, high), strict=True))
    promtool(tmp_path, {}, [(expression, None) for expression in asked])
    promtool(tmp_path, dict.fromkeys(sums(CASES[0]), 0.0), [(expression, None) for expression in asked])


def sums(answers: Sequence[Judged]) -> dict[str, float]:
    """Return what the collector's series grow by."""
    found: dict[str, float] = {}
    for answer in answers:
        weight, outcome = 1 / answer.probability, "pass" if answer.passes else "fail"
        square = weight**2
        for series, amount in (
            (named(WEIGHTED.name, "count", outcome), weight),
            (named(WEIGHTED.name, "sum", outcome), weight * answer.score),
            (named(WEIGHT_SQUARED.name, "total"), square),
            (named(SCORE_PRODUCT.name, "total"), square * answer.score),
            (named(SCORE_SQUARED.name, "total"), square * answer.score**2),
            (named(PASS_SQUARED.name, "total"), square * answer.passes),
        ):
            found[series] = found.get(series, 0.0) + amount
    return found


def named(metric: str, suffix: str, outcome: str = "") -> str:
    labels = 'gen_ai_evaluation_name="faithfulness"'
    if outcome:
        labels += f',gen_ai_evaluation_score_label="{outcome}"'
    return f"{label(metric)}_{suffix}{{{labels}}}"


def promtool(folder: Path, growth: dict[str, float], asked: Iterable[tuple[str, float | None]]) -> None:
    """Let promtool compare each expression with its value, rounded, or with nothing."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    tests: list[dict[str, Any]] = []
    for expression, value in asked:
        filled_in = filled(expression, VALUES | {"window": f"{MINUTES}m"})
        samples = [] if value is None else [{"labels": "{}", "value": round(value, 6)}]
        tests.append(
            {"expr": f"round({filled_in}, 0.000001)", "eval_time": f"{MINUTES}m", "exp_samples": samples}
        )
    series = [
        {"series": name, "values": f"0+{amount / MINUTES}x{MINUTES}"} for name, amount in growth.items()
    ]
    file = folder / "estimates.test.yml"
    file.write_text(
        yaml.safe_dump({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}]})
    )
    command = [program, "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
