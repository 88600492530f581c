"""The shipped rules of an objective and the PromQL of estimates, by promtool and a real Prometheus."""

from __future__ import annotations

import math
import re
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
from tests.dashboards import filled, read
from tests.deploy.test_deploy import PROMETHEUS, alert_rules, run
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow


LABELS = 'gen_ai_evaluation_name="faithfulness", service_name="shop"'
HOUR, DAY = 60, 24 * 60
FAST, SLOW, UNJUDGED = "RagtraceSloBurnsFast", "RagtraceSloBurnsSlowly", "RagtraceSloUnjudged"


def write_rules(folder: Path, service: str = "shop", metric: str = "faithfulness", form: str = "") -> Path:
    """Write the rules of a service and metric as the head of the shipped file says."""
    shipped = (PROMETHEUS / f"objective{form}.yml").read_text()
    out = folder / f"{service}-rules.yml"
    out.write_text(shipped.replace("shop", service).replace("faithfulness", metric))
    return out


def weighed(label: str, passed: str) -> list[dict[str, str]]:
    """Return the series of one label: counts a minute as promtool writes them, and their weights."""
    raw, weighted = passed.split("|") if "|" in passed else (passed, passed)
    both = f'{LABELS}, gen_ai_evaluation_score_label="{label}"'
    return [
        {"series": f"ragtrace_evaluation_score_count{{{both}}}", "values": raw},
        {"series": f"ragtrace_evaluation_score_weighted_count{{{both}}}", "values": weighted},
    ]


def firing(rules: Path, series: Sequence[dict[str, str]], minutes: int) -> set[tuple[str, str]]:
    """Say which alerts of an objective fire at a time, with their longer windows; by promtool."""
    expression = 'count by (alertname, long_window) (ALERTS{alertname=~"RagtraceSlo.*", alertstate="firing"})'
    test = {
        "interval": "1m",
        "input_series": list(series),
        "promql_expr_test": [{"expr": expression, "eval_time": f"{minutes}m", "exp_samples": []}],
    }
    file = rules.with_name("try.yml")
    every = 30 if minutes > 2 * DAY else 5 if minutes > DAY else 1  # minutes: a look at days takes as long
    document = {"rule_files": [str(rules)], "evaluation_interval": f"{every}m", "tests": [test]}
    file.write_text(yaml.safe_dump(document))
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [promtool, "test", "rules", file], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    _, got, samples = (done.stdout + done.stderr).partition("got:")
    assert got or done.returncode == 0, done.stdout + done.stderr
    return {(name, window) for name, window in re.findall(_FIRING, samples)}


_FIRING = re.compile(r'alertname=\\?"(\w+)\\?"(?:, long_window=\\?"(\w+)\\?")?')


@pytest.mark.parametrize(
    ("passed", "failed", "minutes", "found"),
    [
        # nothing fails beyond what may: 4 %
        ("0+24x5000", "0+1x5000", 4 * DAY - HOUR, set()),
        # all is well, then 8 of 10 fail for an hour
        (f"0+10x{DAY} {DAY * 10}+2x90", f"0x{DAY} 0+8x90", DAY + 75, {(FAST, "1h")}),
        # all fail, and 15 answers are judged in an hour: too few for anyone to be woken
        ("0x100", "0 0x5 1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3 9x3 10x3 11x3 12x3 13x3 14x3 15x60", 70, set()),
        # it is over: the shorter window ends the alert
        (f"0+10x{DAY} {DAY * 10}x70 {DAY * 10}+10x20", f"0x{DAY} 0+10x70 710x20", DAY + 80, set()),
        # one of ten judged fails, and represents 91 of 100 answers
        ("0+9x200|0+9x200", "0+1x200|0+91x200", 90, {(FAST, "1h"), (FAST, "6h"), (SLOW, "3d")}),
    ],
    ids=["meets", "burns_fast", "few", "is_over", "weighted"],
)
def test_an_objective_alerts_by_how_fast_its_budget_burns(
    passed: str, failed: str, minutes: int, found: set[tuple[str, str]], tmp_path: Path
) -> None:
    series = [*weighed("pass", passed), *weighed("fail", failed)]
    fired = firing(write_rules(tmp_path), series, minutes)
    assert {each for each in fired if each[0] != UNJUDGED} == found


def test_without_an_answer_nobody_is_woken_and_it_is_told(tmp_path: Path) -> None:
    assert firing(write_rules(tmp_path), [], 2 * HOUR) == {(UNJUDGED, "")}


def scored(metric: str, label: str, *, every: str) -> list[dict[str, str]]:
    """Return the series of one label as the collector has them."""
    both = f'gen_ai_evaluation_name="{metric}", service_name="shop", gen_ai_evaluation_score_label="{label}"'
    names = ("ragtrace_evaluation_score_count", "ragtrace_evaluation_score_weighted_count")
    return [{"series": f"{name}{{{both}}}", "values": every} for name in names]


def test_series_that_are_born_above_zero_count(tmp_path: Path) -> None:
    """The first scrape after a failure, or after a restart, sees all of them at once."""
    metric = "hallucination"
    rules = write_rules(tmp_path, metric=metric)
    assert (FAST, "1h") in firing(rules, scored(metric, "fail", every="_x60 90x60"), HOUR + 4)
    assert firing(rules, scored(metric, "pass", every="_x60 90x60"), HOUR + 4) == set()


def test_grafana_asks_what_prometheus_understands(tmp_path: Path) -> None:
    document = yaml.safe_load(write_rules(tmp_path, form="-grafana").read_text())
    assert document["apiVersion"] == 1
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["uid"] for rule in rules}) == len(rules) == 4
    as_prometheus = [{"alert": f"a{number}", "expr": asked(rule)} for number, rule in enumerate(rules)]
    (tmp_path / "as.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": as_prometheus}]}))
    run("promtool", "check", "rules", tmp_path / "as.yml")
    for rule in rules:
        assert rule["condition"] in {query["refId"] for query in rule["data"]}
        assert rule["noDataState"] == "OK"
        assert "$value " not in rule["annotations"]["summary"]


def asked(rule: dict[str, Any]) -> str:
    expression: str = rule["data"][0]["model"]["expr"]
    return expression


def test_every_alert_has_a_severity_and_links_into_the_runbook(tmp_path: Path) -> None:
    runbook = (PROMETHEUS.parents[2] / "docs" / "runbook.md").read_text()
    alerts = [*alert_rules()]
    groups = yaml.safe_load(write_rules(tmp_path).read_text())["groups"]
    alerts += [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) > 20
    for rule in alerts:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["runbook_url"].endswith(f"docs/runbook.md#{rule['alert'].lower()}")
        assert f"## {rule['alert']}\n" in runbook


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


@pytest.mark.parametrize("title", ["Mean of $metric", "Pass rate"])
def test_an_estimate_is_what_the_formulas_say(title: str, tmp_path: Path) -> None:
    panels = [each for each in read("quality-tempo.json")["panels"] if each["title"] == title]
    (asked,) = (
        [target["expr"] for target in each["targets"]] for each in panels if each["type"] == "timeseries"
    )
    for answers in CASES:
        values = [
            (float(found.passes) if title == "Pass rate" else found.score, 1 / found.probability)
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
    return f"{metric.replace('.', '_')}_{suffix}{{{labels}}}"


def promtool(folder: Path, growth: dict[str, float], asked: Iterable[tuple[str, float | None]]) -> None:
    """Let promtool compare each expression with its value, rounded, or with nothing."""
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
    run("promtool", "test", "rules", file)
