"""The rules of `ragtrace slo rules`, tried by promtool on made series and loaded by a real Prometheus."""

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

CONFIG = """
export: [{{endpoint: 'http://localhost:4317'}}]
evaluate: {{metrics: [{{name: faithfulness, threshold: 0.5}}, context_recall]}}
slo: [{slo}]
"""
FAITHFUL = "{name: faithful, service: shop, objective: 0.95}"
LABELS = 'gen_ai_evaluation_name="faithfulness", service_name="shop"'
HOUR, DAY = 60, 24 * 60
FAST, SLOW, UNJUDGED = "RagtraceSloBurnsFast", "RagtraceSloBurnsSlowly", "RagtraceSloUnjudged"


def write_rules(folder: Path, slo: str = FAITHFUL, form: str = "prometheus") -> Path:
    (folder / "collector.yaml").write_text(CONFIG.format(slo=slo))
    out = folder / f"{form}-rules.yml"
    done = program.run(
        "slo", "rules", "--config", str(folder / "collector.yaml"), "--format", form, "--out", str(out)
    )
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


@pytest.mark.slow
def test_scores_below_a_bound_fail_where_the_metric_passes_by_another(tmp_path: Path) -> None:
    rules = write_rules(tmp_path, "{name: faithful, service: shop, objective: 0.95, at_least: 0.8}")
    series = [
        *weighed("pass", "0+10x200"),
        {"series": f'ragtrace_evaluation_score_weighted_bucket{{{LABELS}, le="0.75"}}', "values": "0+9x200"},
        {"series": f'ragtrace_evaluation_score_weighted_bucket{{{LABELS}, le="0.8"}}', "values": "0+10x200"},
    ]
    assert firing(rules, series, 2 * HOUR) == {(FAST, "1h"), (FAST, "6h"), (SLOW, "3d")}
    series[2]["values"] = "0+0x200"
    assert firing(rules, series, 2 * HOUR) == set()


@pytest.mark.slow
@pytest.mark.parametrize("objective", [0.5, 0.9, 0.999])
def test_every_objective_can_be_broken_fast(objective: float, tmp_path: Path) -> None:
    rules = write_rules(tmp_path, f"{{name: faithful, service: shop, objective: {objective}}}")
    series = [*weighed("pass", "0x200"), *weighed("fail", "0+10x200")]
    assert firing(rules, series, 2 * HOUR) == {(FAST, "1h"), (FAST, "6h"), (SLOW, "3d")}


@pytest.mark.slow
def test_promtool_takes_the_rules_with_names_of_any_kind(tmp_path: Path) -> None:
    hostile = r"""{name: a, service: "it's \"\\ {x} ünï", tenant: 'a"} or vector(1) #'}"""
    assert "SUCCESS" in run("promtool", "check", "rules", write_rules(tmp_path, hostile))


@pytest.mark.slow
def test_grafana_asks_what_prometheus_understands(tmp_path: Path) -> None:
    document = yaml.safe_load(write_rules(tmp_path, form="grafana").read_text())
    assert document["apiVersion"] == 1
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["uid"] for rule in rules}) == len(rules) == 7
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
        if group["name"] == "ragtrace-slo-faithful"
    }


def test_a_score_between_two_buckets_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "collector.yaml").write_text(
        CONFIG.format(slo="{name: faithful, metric: context_recall, at_least: 0.87}")
    )
    done = program.run("slo", "rules", "--config", str(tmp_path / "collector.yaml"))
    assert done.exit_code == 2
    assert "write `at_least: 0.85`" in done.stderr
    assert "`threshold: 0.87`" in done.stderr


def test_any_score_will_do_where_the_metric_itself_passes_there(tmp_path: Path) -> None:
    text = write_rules(tmp_path, "{name: faithful, at_least: 0.5}").read_text()
    assert 'gen_ai_evaluation_score_label="fail"' in text
    assert "_bucket" not in text


def test_what_the_rules_cannot_see_is_told(tmp_path: Path) -> None:
    (tmp_path / "collector.yaml").write_text(
        CONFIG.format(slo="{name: faithful, metric: context_recall, at_least: 0.8, objective: 0.9}")
    )
    done = program.run("slo", "rules", "--config", str(tmp_path / "collector.yaml"))
    assert "a score between 0.75 and 0.8 counts as good in these rules" in done.stderr
    assert "the usual burn rate of 1h could hardly be reached" in done.stderr
    assert yaml.safe_load(done.stdout)["groups"]


def test_a_configuration_without_an_objective_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "collector.yaml").write_text(CONFIG.format(slo=""))
    done = program.run("slo", "rules", "--config", str(tmp_path / "collector.yaml"))
    assert done.exit_code == 2
    assert "`slo` names no objective: add one" in done.stderr


def test_every_alert_links_into_the_runbook(tmp_path: Path) -> None:
    document = yaml.safe_load(write_rules(tmp_path).read_text())
    runbook = (PROMETHEUS.parents[2] / "docs" / "runbook.md").read_text()
    known = {rule["alert"] for rule in alert_rules()}
    alerts = [rule for group in document["groups"] for rule in group["rules"] if "alert" in rule]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["runbook_url"].endswith(f"docs/runbook.md#{rule['alert'].lower()}")
        assert f"## {rule['alert']}\n" in runbook
        assert rule["alert"] not in known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("telemetry", "said"),
    [
        ("{scores: {by: [model]}}", "add `service` to `telemetry.scores.by`"),
        ("{scores: {enabled: false}}", "Prometheus gets no scores"),
    ],
)
def test_an_objective_that_no_metric_shows_is_refused(telemetry: str, said: str, tmp_path: Path) -> None:
    config = tmp_path / "collector.yaml"
    config.write_text(CONFIG.format(slo=FAITHFUL) + f"telemetry: {telemetry}\n")
    done = program.run("slo", "rules", "--config", str(config))
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    checked = program.run("collector", "--config", str(config), "--check")
    assert checked.exit_code == 0
    assert said in " ".join(checked.stderr.split())


@pytest.mark.slow
def test_the_rules_find_what_a_real_collector_tells_a_real_prometheus(tmp_path: Path) -> None:
    """Half of the shop's answers fail, and none of the bot's."""
    few = "alerts: {fewest_answers: 1}"
    slos = ", ".join(
        (
            f"{{name: shop, service: shop, {few}}}",
            f"{{name: shop-by-score, service: shop, at_least: 0.8, {few}}}",
            f"{{name: bot, service: bot, {few}}}",
        )
    )
    rules = write_rules(tmp_path, slos)
    rules.write_text(re.sub(r"interval: 10?m", "interval: 200ms", rules.read_text()))
    (port,) = free_ports(1)
    settings = score_config(tmp_path, telemetry={"listen": f"127.0.0.1:{port}"})
    with (
        collector_process(tmp_path, settings) as collector,
        running_prometheus(tmp_path, scrapes={"ragtrace": port}, rule_files=[rules]) as prometheus,
    ):
        send_answers(collector, first=1_000)  # Prometheus sees growth only from a first scrape on
        eventually(
            lambda: len(prometheus.series("ragtrace_evaluation_score_count")) >= 3, what="first answers"
        )
        send_answers(collector)
        burning = 'ALERTS{alertname="RagtraceSloBurnsFast", long_window="6h"}'
        eventually(lambda: len(prometheus.series(burning)) == 2, what="an alert")
        assert {labels["slo"] for labels, _ in prometheus.series(burning)} == {"shop", "shop-by-score"}
        share = "slo:ragtrace_failing:ratio_increase6h"
        eventually(lambda: len(prometheus.series(share)) == 3, what="the share of each objective")
        shares = {labels["slo"]: value for labels, value in prometheus.series(share)}
        assert shares["shop"] == pytest.approx(shares["shop-by-score"], abs=0.1)
        assert shares["shop"] == pytest.approx(0.5, abs=0.3)
        assert shares["bot"] == 0
