"""``ragtrace backfill`` with a limit to what it may spend, alone and beside a collector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragtrace.cli.backfill_run import OVER_BUDGET
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.paid_judge import PAID, paid, prices
from tests.unit.backfill.stored_traces import rag_trace, write_traces

ANSWERS = 12


def _name(request: pytest.FixtureRequest) -> str:
    return "".join(filter(str.isalnum, request.node.name))


@pytest.fixture
def backfill(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Back-fill a file of answers by a judge that costs; returns exit code, report and what was said."""
    traces = [rag_trace(number) for number in range(ANSWERS)]
    source = f"otlp-file:{write_traces(tmp_path / 'traces.jsonl', traces)}"
    name = _name(request)

    def begin(*args: str) -> tuple[int, dict[str, Any], str]:
        to = f"otlp-file:{tmp_path / 'verdicts.jsonl'}"
        asked = (
            "--judge",
            f"{PAID}{name}",
            "--set",
            "judge.prices=" + prices(tmp_path, name),
            "--concurrency",
            "1",
            "--yes",
        )
        result = run("backfill", "--from", source, "--to", to, *asked, "--json", *args)
        found = json_lines(result.stdout)
        return result.exit_code, found[0] if found else {}, " ".join(result.stderr.split())

    return begin


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Any:
    return paid(_name(request))


def test_at_the_limit_nothing_more_is_begun_and_what_is_left_is_told(backfill: Any, judge: Any) -> None:
    code, report, said = backfill("--max-calls", "9")
    assert (code, judge.calls) == (OVER_BUDGET, 9)
    assert (report["judged"], report["left"], report["sent"]) == (4, ANSWERS - 4, 4)
    assert report["judged"] + report["left"] == report["records"]
    assert "9 of 9 calls are spent, and the next request may take 1" in said
    assert f"{ANSWERS - 4} answers left" in said
    assert "--resume" in said


def test_what_was_spent_stays_spent_for_a_run_that_goes_on(backfill: Any, judge: Any) -> None:
    backfill("--max-calls", "8")
    code, report, _ = backfill("--max-calls", "8", "--resume")
    assert (code, report["judged"], judge.calls) == (OVER_BUDGET, 0, 8)
    code, report, _ = backfill("--max-calls", "24", "--resume")
    assert (code, report["judged"], report["already_evaluated"], judge.calls) == (0, 8, 4, 24)


@pytest.mark.parametrize("limit", [("--max-cost", "60"), ("--max-tokens", "6000")])
def test_money_and_tokens_are_never_exceeded(backfill: Any, limit: tuple[str, str]) -> None:
    code, report, said = backfill(*limit)
    used = report["usage"]["input_tokens"] + report["usage"]["output_tokens"]
    assert code == OVER_BUDGET
    assert 0 < used <= 6_000  # a token costs a cent
    assert "are spent, and the next request may take" in said


def test_a_judge_without_a_price_is_refused_where_money_is_limited(backfill: Any) -> None:
    code, _, said = backfill("--max-cost", "5", "--judge", f"{PAID}unknown")
    assert code == 2
    assert "there is no price for paid:unknown: name it in a file for --set judge.prices=FILE" in said


def test_a_judge_that_computes_passes_every_limit(backfill: Any) -> None:
    code, report, _ = backfill("--max-cost", "0.01", "--judge", "lexical")
    assert (code, report["judged"]) == (0, ANSWERS)
