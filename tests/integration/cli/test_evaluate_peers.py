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

FAITHFUL = [case for case in read_cases() if (case.metric, case.profile) == ("faithfulness", "deepeval-4")]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


async def run_at(endpoint: PeerEndpoint, *arguments: str) -> Result:
    async with serving(endpoint):
        return await asyncio.to_thread(
            run, "evaluate", *arguments, "--judge", "openai:m", "--base-url", endpoint.url, "--json"
        )


def line_under(profile: str, cases: str, *, judge: str = "scripted:") -> dict[str, Any]:
    [line] = json_lines(run("evaluate", cases, "--judge", judge, "--profile", profile, "--json").stdout)
    return line


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


async def test_vectors_come_from_the_endpoint_of_the_judge(tmp_path: Path) -> None:
    [case] = [c for c in read_cases() if (c.case["id"], c.profile) == ("arel-mixed", "ragas")]
    cases = write(tmp_path / "cases.jsonl", case.row)
    endpoint = PeerEndpoint(replies=case.replies, embeddings=case.embeddings)
    result = await run_at(
        endpoint, cases, "--metrics", "answer_relevancy", "--profile", "ragas", "--peer-prompts"
    )
    [line] = json_lines(result.stdout)
    assert line["compat_score"] == pytest.approx(case.expected["score"])
    assert line["calls"] == 3
    assert endpoint.embedded[0] == case.row["question"]


async def test_options_of_a_peer_reach_it(tmp_path: Path) -> None:
    [case] = [c for c in FAITHFUL if c.case["id"] == "faith-one-neutral"]
    cases = write(tmp_path / "cases.jsonl", case.row)
    options = ["--penalize-ambiguous-claims", "--strict-mode", "--truths-extraction-limit", "7"]
    endpoint = PeerEndpoint(replies=case.replies)
    result = await run_at(endpoint, cases, "--profile", "deepeval-4", "--peer-prompts", *options)
    [line] = json_lines(result.stdout)
    assert (line["compat_score"], line["threshold"]) == (0.0, 1.0)
    assert "7" in endpoint.prompts[0]


def test_our_own_verdicts_are_scored_by_the_rule_of_the_profile(tmp_path: Path) -> None:
    row = {"question": "q", "contexts": ["It rains."], "answer": "It rains. It snows."}
    cases = write(tmp_path / "cases.jsonl", row)
    scores = {profile: line_under(profile, cases) for profile in ("ragas", "deepeval-4")}
    assert {profile: line["score"] for profile, line in scores.items()} == {"ragas": 0.5, "deepeval-4": 1.0}
    assert scores["ragas"]["compat_status"] == "ok"


def test_an_answer_without_claims_is_what_the_profile_says(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"answers": {"Hello": {"claims": []}}}')
    cases = write(tmp_path / "cases.jsonl", {"question": "q", "contexts": ["c"], "answer": "Hello!"})
    lines = {
        profile: line_under(profile, cases, judge=f"scripted:{script}")
        for profile in ("ragas", "deepeval-4", "promptfoo", "rag_evals")
    }
    assert {profile: (line["compat_status"], line["score"]) for profile, line in lines.items()} == {
        "ragas": ("nan", None),
        "deepeval-4": ("ok", 1.0),
        "promptfoo": ("grader_error", None),
        "rag_evals": ("ok", 0.0),
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--peer-prompts"], "--peer-prompts needs --profile"),
        (["--profile", "ragas", "--strict-mode"], "--strict-mode needs --profile deepeval-4 or -3"),
        (["--profile", "ragas", "--strictness", "2"], "--strictness needs --peer-prompts"),
        (["--profile", "ragas", "--metrics", "hallucination"], "ragas has no rule"),
        (["--profile", "ragas", "--peer-prompts", "--metrics", "hallucination"], "ragas has no metric"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    cases = write(tmp_path / "cases.jsonl", {"question": "q", "contexts": ["c"], "answer": "a"})
    result = run("evaluate", cases, "--judge", "scripted:", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
