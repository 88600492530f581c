"""``ragtrace plan``: what it says of traffic, of a configuration, and of values that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.program import run

CONFIG = """
export: [{endpoint: "http://localhost:4317"}]
sample: {ratio: 0.25}
judge: {use: "openai:gpt-4o-mini"}
store: {max_bytes: 10MB}
budget: {live: {day: {usd: 1}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "collector.yaml"
    file.write_text(CONFIG)
    return file


def as_json(*arguments: str) -> dict[str, Any]:
    done = run("plan", *arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def words(*arguments: str) -> str:
    done = run("plan", *arguments)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    return " ".join(done.stdout.split())


def test_it_says_plainly_that_one_process_is_enough() -> None:
    told = words("--rps", "1", "--judge-latency", "2s")
    assert "One process with SQLite is enough: you need nothing more." in told
    assert "kafka" not in told


def test_it_says_why_one_is_not_enough_and_what_is() -> None:
    told = words("--rps", "500", "--judge-latency", "2s")
    assert "One process is not enough: it would use" in told
    assert "Judge less (`--rate 0.0" in told
    assert "with `role: evaluate`" in told
    assert "assumed, not measured" in told


def test_the_rate_that_it_offers_fits_into_one_process() -> None:
    told = words("--rps", "500")
    rate = told.partition("`--rate ")[2].partition("`")[0]
    assert as_json("--rps", "500", "--rate", rate)["fits_one_process"] is True


def test_a_configuration_gives_rate_judge_and_limits(config: Path) -> None:
    told = words("--rps", "20", "--config", str(config))
    assert "25% judged by openai:gpt-4o-mini" in told
    assert "Set `evaluate.concurrency` and `judge.max_concurrency` to" in told
    assert "`store.max_bytes` is 10 MB: set at least" in told
    assert "`budget.live.day.usd` is 1: enough for" in told


def test_options_override_the_configuration(config: Path) -> None:
    found = as_json("--rps", "2", "--config", str(config), "--rate", "0.5", "--judge-usd", "0.01")
    assert found["workload"]["rate"] == 0.5
    assert found["daily"]["usd"]["likely"] == pytest.approx(2 * 0.5 * 86_400 * 0.01)


def test_rules_that_keep_all_traces_are_counted(config: Path) -> None:
    config.write_text(CONFIG.replace("ratio: 0.25", "ratio: 0.25, on_request: true"))
    found = as_json("--rps", "2", "--config", str(config))
    assert (found["workload"]["rate"], found["workload"]["kept"]) == (0.25, 1.0)


def test_several_metrics_take_more_requests(config: Path) -> None:
    config.write_text(f"{CONFIG}evaluate: {{metrics: [faithfulness, answer_relevance]}}\n")
    assert as_json("--rps", "2", "--config", str(config))["workload"]["judge_calls"] == 4


def test_a_judge_that_computes_costs_processor_time_and_no_money() -> None:
    found = as_json("--rps", "5", "--judge", "lexical")
    assert found["daily"]["usd"]["high"] == 0
    assert found["peak"]["in_flight"] == 0
    assert found["single"]["judge_cores"]["likely"] > 0


def test_a_price_that_nobody_knows_is_called_unknown() -> None:
    assert "unknown give --judge-usd or --prices" in words("--rps", "5", "--judge", "openai:ours")
    assert as_json("--rps", "5", "--judge", "openai:ours")["daily"]["usd"] is None


def test_prices_of_a_file_are_taken(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[openai]\nours = {input = 1.0, output = 0.0}\n")
    found = as_json(
        *("--rps", "1", "--judge", "openai:ours", "--prices", str(prices), "--tokens-in", "1000"),
    )
    assert found["daily"]["usd"]["likely"] == pytest.approx(86_400 * 0.001)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rps", "0"), "'--rps': write a number above 0"),
        (("--rps", "-3"), "'--rps': write a number above 0"),
        (("--rps", "nan"), "'--rps': write a number above 0"),
        (("--rps", "inf"), "'--rps': write a number above 0"),
        (("--rps", "many"), "'--rps': write a number, such as 12.5"),
        ((), "Missing option '--rps'"),
        (("--rps", "1", "--rate", "1.01"), "'--rate': write a share from 0 to 1"),
        (("--rps", "1", "--rate", "nan"), "'--rate': write a share from 0 to 1"),
        (("--rps", "1", "--peak", "0.5"), "'--peak': write a multiple of the average"),
        (("--rps", "1", "--judge-latency", "0s"), "'--judge-latency': write a duration longer than zero"),
        (("--rps", "1", "--judge-latency", "2"), "'--judge-latency': write a duration with its unit"),
        (("--rps", "1", "--call-size", "22"), "'--call-size': write a size with its unit"),
        (("--rps", "1", "--call-size", "nankB"), "'--call-size': write a"),
        (("--rps", "1", "--judge-usd", "-1"), "'--judge-usd': write a number that is not below 0"),
        (("--rps", "1", "--concurrency", "0"), "'--concurrency'"),
        (("--rps", "1", "--judge-calls", "0"), "'--judge-calls': write a number above 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_value_is_named_with_what_to_write(arguments: tuple[str, ...], said: str) -> None:
    done = run("plan", *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_wrong_configuration_is_named(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text("sample: {ratio: 2}\nexport: []\n")
    done = run("plan", "--rps", "1", "--config", str(file))
    assert done.exit_code == 2
    assert "sample.ratio" in done.output
