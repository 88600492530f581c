"""``ragtrace evaluate --profile``: other tools' rules, and their prompts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.peer_cases import read_cases
from tests.conformance.peer_endpoint import PeerEndpoint, serving
from tests.integration.cli.program import Result, json_lines, run

pytestmark = pytest.mark.slow

FAITHFUL = [case for case in read_cases() if (case.metric, case.profile) == ("faithfulness", "deepeval-4")]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


async def run_at(endpoint: PeerEndpoint, *arguments: str) -> Result:
    async with serving(endpoint):
        return await asyncio.to_thread(
            run, "evaluate", *arguments, "--judge", "openai:m", "--base-url", endpoint.url, "--json"
        )


async def test_a_line_a_record_says_what_the_peer_reports(tmp_path: Path) -> None:
    rows = [case.row for case in FAITHFUL]
    replies = [reply for case in FAITHFUL for reply in case.replies]
    cases = write(tmp_path / "cases.jsonl", *rows)
    result = await run_at(
        PeerEndpoint(replies=replies),
        cases,
        "--profile",
        "deepeval-4",
        "--peer-prompts",
        "--concurrency",
        "1",
    )
    assert result.exit_code == 1  # one of them is an error
    said = [(line["id"], line["compat_status"], line["compat_score"]) for line in json_lines(result.stdout)]
    assert said == [(c.case["id"], c.status, pytest.approx(c.expected["score"])) for c in FAITHFUL]


async def test_options_of_a_peer_reach_it(tmp_path: Path) -> None:
    [case] = [c for c in FAITHFUL if c.case["id"] == "faith-one-neutral"]
    cases = write(tmp_path / "cases.jsonl", case.row)
    options = [
        "--set",
        "evaluate.metrics.*.options.penalize_ambiguous_claims=true",
        "--set",
        "evaluate.metrics.*.options.strict_mode=true",
        "--set",
        "evaluate.metrics.*.options.truths_extraction_limit=7",
    ]
    endpoint = PeerEndpoint(replies=case.replies)
    result = await run_at(endpoint, cases, "--profile", "deepeval-4", "--peer-prompts", *options)
    [line] = json_lines(result.stdout)
    assert (line["compat_score"], line["threshold"]) == (0.0, 1.0)
    assert "7" in endpoint.prompts[0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--peer-prompts"], "`peer_prompts` needs a `profile`"),
        (["--profile", "ragas", "--metrics", "hallucination"], "ragas has no rule"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    cases = write(tmp_path / "cases.jsonl", {"question": "q", "contexts": ["c"], "answer": "a"})
    result = run("evaluate", cases, "--judge", "scripted:", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


async def test_the_reason_that_was_paid_for_is_shown(tmp_path: Path) -> None:
    [case] = [c for c in FAITHFUL if c.case["id"] == "faith-one-neutral"]
    reason = "Nothing in the context says so."
    cases, out = write(tmp_path / "cases.jsonl", case.row), tmp_path / "out.jsonl"
    arguments = (
        cases,
        "--profile",
        "deepeval-4",
        "--peer-prompts",
        "--set",
        "evaluate.metrics.*.options.include_reason=true",
    )
    replies = [*case.replies, json.dumps({"reason": reason})]
    result = await run_at(PeerEndpoint(replies=replies), *arguments, "--out", str(out))
    [line] = json_lines(result.stdout)
    assert (line["reason"], line["calls"]) == (reason, 4)
    assert line["intermediate"]["truths"] == json.loads(case.replies[0])["truths"] != []
    [metric] = json.loads(out.read_text())["judged"]["evaluation"]["outcomes"]
    assert (metric["reason"], metric["intermediate"]) == (reason, line["intermediate"])
    endpoint = PeerEndpoint(replies=replies)
    async with serving(endpoint):
        at = ("--judge", "openai:m", "--base-url", endpoint.url)
        shown = await asyncio.to_thread(run, "evaluate", *arguments, *at)
    assert f"    reason        {reason}" in [line.rstrip() for line in shown.stdout.splitlines()]
