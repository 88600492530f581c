"""The rules of `ragtrace rules`, tried by promtool on made series and loaded by a real Prometheus."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.acceptance.collector_process import collector_process
from tests.backends.process import eventually, free_ports, is_listening, running
from tests.backends.prometheus_server import running_prometheus
from tests.deploy.test_deploy import PROMETHEUS, alert_rules, run
from tests.integration.cli import program
from tests.integration.collector.test_score_metrics import config as score_config
from tests.integration.collector.test_score_metrics import send as send_answers
from tests.patience import PATIENCE_S

FAITHFUL = ("--metric", "faithfulness", "--service", "shop")
LABELS = 'gen_ai_evaluation_name="faithfulness", service_name="shop"'
HOUR, DAY = 60, 24 * 60
FAST, SLOW, UNJUDGED = "RagtraceSloBurnsFast", "RagtraceSloBurnsSlowly", "RagtraceSloUnjudged"


def write_rules(folder: Path, *flags: str, form: str = "prometheus") -> Path:
    out = folder / f"{form}-rules.yml"
    done = program.run("rules", *(flags or FAITHFUL), "--format", form, "--out", str(out))
    assert done.exit_code == 0, done.output
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
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("passed", "failed", "minutes", "found"),
    [
        # nothing fails beyond what may: 4 %
        ("0+24x5000", "0+1x5000", 4 * DAY - HOUR, set()),
        # all is well, then 8 of 10 fail for an hour
        (f"0+10x{DAY} {DAY * 10}+2x90", f"0x{DAY} 0+8x90", DAY + 75, {(FAST, "1h")}),
        # 4 of 10 fail for six hours
        (f"0+10x{DAY} {DAY * 10}+6x400", f"0x{DAY} 0+4x400", DAY + 390, {(FAST, "6h"), (SLOW, "3d")}),
        # 7 % fail for days
        ("0+93x5000", "0+7x5000", 3 * DAY + HOUR, {(SLOW, "3d")}),
        # all fail, and 15 answers are judged in an hour: too few for anyone to be woken
        ("0x100", "0 0x5 1x3 2x3 3x3 4x3 5x3 6x3 7x3 8x3 9x3 10x3 11x3 12x3 13x3 14x3 15x60", 70, set()),
        # no answer in the last five minutes: the longer window decides alone
        (f"0+10x{DAY} {DAY * 10}+0x90", f"0x{DAY} 0+10x70 710x20", DAY + 80, {(FAST, "1h")}),
        # it is over: the shorter window ends the alert
        (f"0+10x{DAY} {DAY * 10}x70 {DAY * 10}+10x20", f"0x{DAY} 0+10x70 710x20", DAY + 80, set()),
        # one of ten judged fails, and represents 91 of 100 answers
        ("0+9x200|0+9x200", "0+1x200|0+91x200", 90, {(FAST, "1h"), (FAST, "6h"), (SLOW, "3d")}),
    ],
    ids=["meets", "burns_fast", "burns_in_hours", "burns_slowly", "few", "pauses", "is_over", "weighted"],
)
def test_an_objective_alerts_by_how_fast_its_budget_burns(
    passed: str, failed: str, minutes: int, found: set[tuple[str, str]], tmp_path: Path
) -> None:
    series = [*weighed("pass", passed), *weighed("fail", failed)]
    fired = firing(write_rules(tmp_path), series, minutes)
    assert {each for each in fired if each[0] != UNJUDGED} == found


@pytest.mark.slow
def test_without_an_answer_nobody_is_woken_and_it_is_told(tmp_path: Path) -> None:
    assert firing(write_rules(tmp_path), [], 2 * HOUR) == {(UNJUDGED, "")}


@pytest.mark.slow
def test_scores_of_other_metrics_and_services_do_not_count(tmp_path: Path) -> None:
    series = [
        *weighed("pass", "0+10x200"),
        *weighed("fail", "0x200"),
        *of_others("context_recall", "shop"),
        *of_others("faithfulness", "cart"),
    ]
    assert firing(write_rules(tmp_path), series, 2 * HOUR) == set()


def of_others(metric: str, service: str) -> list[dict[str, str]]:
    failing = (
        f'gen_ai_evaluation_name="{metric}", service_name="{service}", gen_ai_evaluation_score_label="fail"'
    )
    return [
        {"series": f"ragtrace_evaluation_{name}_count{{{failing}}}", "values": "0+90x200"}
        for name in ("score", "score_weighted")
    ]


def scored(metric: str, label: str, *, up_to: dict[str, str], every: str) -> list[dict[str, str]]:
    """Return the series of one label as the collector has them: counts, and counts up to some scores."""
    both = f'gen_ai_evaluation_name="{metric}", service_name="shop", gen_ai_evaluation_score_label="{label}"'
    name = "ragtrace_evaluation_score"
    return [
        {"series": f"{name}_count{{{both}}}", "values": every},
        {"series": f"{name}_weighted_count{{{both}}}", "values": every},
        *(
            {"series": f'{name}_weighted_bucket{{{both}, le="{le}"}}', "values": values}
            for le, values in up_to.items()
        ),
    ]


MANY, NONE = "0+10x200", "0x200"
BROKEN = {(FAST, "1h"), (FAST, "6h"), (SLOW, "3d")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "bound", "bad", "good"),
    [
        ("faithfulness", ("--at-least", "0.8"), {"0.75": MANY, "0.8": MANY}, {"0.75": NONE, "0.8": NONE}),
        ("faithfulness", ("--at-least", "1"), {"0.95": MANY}, {"0.95": NONE}),
        ("hallucination", ("--at-most", "0.1"), {"0.1": NONE}, {"0.1": MANY}),
        ("hallucination", ("--at-most", "0"), {"0.0": NONE}, {"0.0": MANY}),
    ],
)
def test_a_bound_fails_bad_scores_and_never_perfect_ones(
    metric: str, bound: tuple[str, str], bad: dict[str, str], good: dict[str, str], tmp_path: Path
) -> None:
    """The labels are of the metric's own rule, and say the opposite: they do not count here."""
    rules = write_rules(tmp_path, "--metric", metric, "--service", "shop", *bound)
    assert firing(rules, scored(metric, "pass", up_to=bad, every=MANY), 2 * HOUR) == BROKEN
    assert firing(rules, scored(metric, "fail", up_to=good, every=MANY), 2 * HOUR) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "bound", "bad", "good"),
    [
        ("faithfulness", (), {}, {}),
        ("hallucination", (), {}, {}),
        ("faithfulness", ("--at-least", "0.8"), {"0.75": "_x60 90x60"}, {"0.75": "_x60 0x60"}),
        ("hallucination", ("--at-most", "0.1"), {"0.1": "_x60 0x60"}, {"0.1": "_x60 90x60"}),
    ],
)
def test_series_that_are_born_above_zero_count(
    metric: str, bound: tuple[str, ...], bad: dict[str, str], good: dict[str, str], tmp_path: Path
) -> None:
    """The first scrape after a failure, or after a restart, sees all of them at once."""
    rules = write_rules(tmp_path, "--metric", metric, "--service", "shop", *bound)
    failing = scored(metric, "fail", up_to=bad, every="_x60 90x60")
    assert (FAST, "1h") in firing(rules, failing, HOUR + 4)
    assert firing(rules, scored(metric, "pass", up_to=good, every="_x60 90x60"), HOUR + 4) == set()


@pytest.mark.slow
def test_without_a_bound_the_own_rule_of_a_metric_decides_where_lower_is_better(tmp_path: Path) -> None:
    rules = write_rules(tmp_path, "--metric", "hallucination", "--service", "shop")
    assert firing(rules, scored("hallucination", "pass", up_to={}, every=MANY), 2 * HOUR) == set()
    assert firing(rules, scored("hallucination", "fail", up_to={}, every=MANY), 2 * HOUR) == BROKEN


@pytest.mark.slow
def test_the_direction_of_an_own_metric_counts(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    address = f"{tmp_path / 'own.py'}:Toxicity"
    rules = write_rules(tmp_path, "--metric", address, "--service", "shop", "--at-most", "0.2")
    assert firing(rules, scored("toxicity", "pass", up_to={"0.2": MANY}, every=MANY), 2 * HOUR) == set()
    assert firing(rules, scored("toxicity", "pass", up_to={"0.2": NONE}, every=MANY), 2 * HOUR) == BROKEN
    refused = program.run("rules", "--metric", address, "--service", "shop", "--at-least", "0.9")
    assert "a low score of toxicity is the good one" in refused.stderr


OWN = """
from ragtrace.metrics.hallucination import Hallucination

class Toxicity(Hallucination):
    "Measures the share of claims that hurt."
    name = "toxicity"
"""


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["0.5", "0.9", "0.999"])
def test_every_objective_can_be_broken_fast(objective: str, tmp_path: Path) -> None:
    rules = write_rules(tmp_path, *FAITHFUL, "--objective", objective)
    assert firing(rules, [*weighed("pass", NONE), *weighed("fail", MANY)], 2 * HOUR) == BROKEN


@pytest.mark.slow
def test_promtool_takes_the_rules_with_names_of_any_kind(tmp_path: Path) -> None:
    hostile = ("--service", r"""it's "\ {x} ünï""", "--tenant", 'a"} or vector(1) #')
    assert "SUCCESS" in run("promtool", "check", "rules", write_rules(tmp_path, *FAITHFUL[:2], *hostile))


@pytest.mark.slow
def test_grafana_asks_what_prometheus_understands(tmp_path: Path) -> None:
    document = yaml.safe_load(write_rules(tmp_path, form="grafana").read_text())
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


@pytest.mark.slow
def test_grafana_s_expressions_fire_as_those_of_prometheus_do(tmp_path: Path) -> None:
    document = yaml.safe_load(write_rules(tmp_path, form="grafana").read_text())
    (rule,) = [
        rule
        for group in document["groups"]
        for rule in group["rules"]
        if rule["labels"].get("long_window") == "1h"
    ]
    file = tmp_path / "as.yml"
    renamed = {"alert": FAST, "expr": asked(rule), "labels": {"long_window": "1h"}}
    file.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [renamed]}]}))
    failing = [*weighed("pass", "0+2x200"), *weighed("fail", "0+8x200")]
    assert firing(file, failing, 90) == {(FAST, "1h")}
    passing = [*weighed("pass", "0+8x200"), *weighed("fail", "0+2x200")]
    assert firing(file, passing, 90) == set()


def asked(rule: dict[str, Any]) -> str:
    expression: str = rule["data"][0]["model"]["expr"]
    return expression


@pytest.mark.slow
def test_a_real_prometheus_loads_the_rules_and_works_them_out(tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed")
    (port,) = free_ports(1)
    rules = write_rules(tmp_path)
    rules.write_text(rules.read_text().replace("interval: 1m", "interval: 1s"))
    config = {"rule_files": [str(rules), str(PROMETHEUS / "alerts.yml")]}
    (tmp_path / "prometheus-config.yml").write_text(yaml.safe_dump(config))
    command = [
        prometheus,
        f"--config.file={tmp_path / 'prometheus-config.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, env={}, ready=lambda: is_listening(port), log=tmp_path / "prometheus.log"):
        eventually(lambda: states(port) == {"ok"}, what="an evaluation of every rule")


def states(port: int) -> set[str]:
    answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/rules", timeout=PATIENCE_S).raise_for_status()
    groups = answer.json()["data"]["groups"]
    return {
        rule["health"]
        for group in groups
        for rule in group["rules"]
        if group["name"] == "ragtrace-slo-shop-faithfulness"
    }


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--metric", "nope", "--service", "shop"], "no metric 'nope': choose from answer_relevance,"),
        (["--metric", "faithfulness"], "--metric needs --service NAME"),
        (["--service", "shop"], "an objective needs --metric NAME"),
        ([*FAITHFUL, "--at-least", "0.9", "--at-most", "0.1"], "--at-least and --at-most: choose"),
        ([*FAITHFUL, "--at-least", "1.2"], "scores of faithfulness are from 0 to 1"),
        ([*FAITHFUL, "--at-least", "0"], "write a number above 0"),
        ([*FAITHFUL, "--at-least", "nan"], "scores of faithfulness are from 0 to 1"),
        ([*FAITHFUL, "--at-least", "0.87"], "write --at-least 0.85; or give the metric"),
        ([*FAITHFUL, "--at-most", "0.1"], "a high score of faithfulness is the good one: write --at-least"),
        (
            ["--metric", "hallucination", "--service", "shop", "--at-least", "0.9"],
            "a low score of hallucination is the good one: write --at-most",
        ),
        (["--metric", "hallucination", "--service", "shop", "--at-most", "1"], "write a number 0 or more"),
        ([*FAITHFUL, "--window", "2h"], "a week is the shortest"),
        ([*FAITHFUL, "--name", "Shop {{x}}"], "--name: write small letters"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_in_a_sentence(flags: list[str], said: str) -> None:
    done = program.run("rules", *flags)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert not done.stdout


def test_what_the_rules_cannot_see_is_told() -> None:
    flags = ("--metric", "context_recall", "--service", "shop", "--at-least", "0.8", "--objective", "0.9")
    done = program.run("rules", *flags)
    assert "A score between 0.75 and 0.8 counts as good in these rules" in done.stderr
    assert "the usual burn rate of 1h could hardly be reached" in done.stderr
    assert yaml.safe_load(done.stdout)["groups"]


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


@pytest.mark.slow
def test_the_rules_find_what_a_real_collector_tells_a_real_prometheus(tmp_path: Path) -> None:
    """Half of the shop's answers fail, and none of the bot's."""
    few = ("--metric", "faithfulness", "--fewest-answers", "1")
    rules = []
    by_score = ("shop", "--at-least", "0.8", "--name", "shop-by-score")
    for name, *more in (("shop",), by_score, ("bot",)):
        folder = tmp_path / "-".join(more[-1:] or [name])
        folder.mkdir()
        file = write_rules(folder, *few, "--service", name, *more)
        file.write_text(re.sub(r"interval: 10?m", "interval: 200ms", file.read_text()))
        rules.append(file)
    (port,) = free_ports(1)
    settings = score_config(tmp_path, telemetry={"listen": f"127.0.0.1:{port}"})
    with (
        collector_process(tmp_path, settings) as collector,
        running_prometheus(tmp_path, scrapes={"ragtrace": port}, rule_files=rules) as prometheus,
    ):
        send_answers(collector, first=1_000)  # Prometheus sees growth only from a first scrape on
        eventually(
            lambda: len(prometheus.series("ragtrace_evaluation_score_count")) >= 3, what="first answers"
        )
        send_answers(collector)
        burning = 'ALERTS{alertname="RagtraceSloBurnsFast", long_window="6h"}'
        shops = {"shop-faithfulness", "shop-by-score"}
        eventually(
            lambda: {labels["slo"] for labels, _ in prometheus.series(burning)} == shops,
            what="an alert of each objective of the shop, and of no other",
        )
        share = "slo:ragtrace_failing:ratio_increase6h"
        slos = {"shop-faithfulness", "shop-by-score", "bot-faithfulness"}

        def told() -> dict[str, float] | None:
            shares = {labels["slo"]: value for labels, value in prometheus.series(share)}
            return shares if shares.keys() == slos else None

        shares = eventually(told, what="the share of each objective")
        assert shares["shop-faithfulness"] == pytest.approx(shares["shop-by-score"], abs=0.1)
        assert shares["shop-faithfulness"] == pytest.approx(0.5, abs=0.3)
        assert shares["bot-faithfulness"] == 0
