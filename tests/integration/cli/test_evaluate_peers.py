"""``ragtrace evaluate --profile``: other tools' rules, and their prompts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ragtrace.compat.tool_metric import tool_metrics
from tests.conformance.peer_cases import read_cases
from tests.conformance.peer_endpoint import PeerEndpoint, serving
from tests.integration.cli.program import Result, json_lines, run

FAITHFUL = [case for case in read_cases() if (case.metric, case.profile) == ("faithfulness", "deepeval-4")]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


STRICT = "evaluate.metrics.*.options.strict_mode=true"


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
        (["--peer-prompts"], "`peer_prompts` needs a `profile`"),
        (["--profile", "ragas", "--set", "evaluate.metrics.*.options.strictness=2"], "strictness"),
        (["--profile", "ragas", "--metrics", "hallucination"], "ragas has no rule"),
        (["--profile", "ragas", "--peer-prompts", "--metrics", "hallucination"], "ragas has no metric"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    cases = write(tmp_path / "cases.jsonl", {"question": "q", "contexts": ["c"], "answer": "a"})
    result = run("evaluate", cases, "--judge", "scripted:", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


NO_CONTEXTS = {"question": "How long?", "answer": "30 days.", "reference": "14 days."}
PEER_PROMPTS = [
    (metric, profile)
    for profile in ("deepeval-3", "deepeval-4", "ragas", "ragas-legacy", "promptfoo", "rag_evals")
    for metric in (
        "faithfulness",
        "context_relevance",
        "context_recall",
        "context_precision",
        "hallucination",
    )
    if metric in {each.metric for each in tool_metrics() if each.profile == profile}
]


@pytest.mark.parametrize(("metric", "profile"), PEER_PROMPTS)
@pytest.mark.parametrize("row", [NO_CONTEXTS, {**NO_CONTEXTS, "contexts": None}], ids=["absent", "null"])
async def test_without_contexts_nothing_is_asked_and_nothing_is_scored(
    tmp_path: Path, metric: str, profile: str, row: dict[str, Any]
) -> None:
    cases = write(tmp_path / "cases.jsonl", row)
    endpoint = PeerEndpoint(replies=['{"truths": []}'])
    result = await run_at(endpoint, cases, "--profile", profile, "--peer-prompts", "--metrics", metric)
    [line] = json_lines(result.stdout)
    assert (line["status"], line["error_type"], line["score"]) == ("error", "missing_params", None)
    assert (line["compat_status"], line["calls"], endpoint.prompts) == ("error", 0, [])
    assert "without context" in line["message"]
    assert result.exit_code == 1


@pytest.mark.parametrize("profile", ["deepeval-3", "deepeval-4"])
@pytest.mark.parametrize(
    "metric", ["faithfulness", "context_precision", "context_relevance", "context_recall"]
)
def test_our_verdicts_without_contexts_give_no_number_either(
    tmp_path: Path, metric: str, profile: str
) -> None:
    cases = write(tmp_path / "cases.jsonl", NO_CONTEXTS)
    arguments = ("--judge", "scripted:", "--profile", profile, "--metrics", metric, "--json")
    [line] = json_lines(run("evaluate", cases, *arguments).stdout)
    assert (line["score"], line["skip_reason"], line["calls"]) == (None, "no_retrieval", 0)
    assert (line["compat_status"], line["compat_score"]) == ("error", None)


@pytest.mark.parametrize("profile", ["ragas", "ragas-legacy"])
async def test_precision_without_a_reference_is_judged_by_the_answer(tmp_path: Path, profile: str) -> None:
    row = {"question": "q", "contexts": ["It rains.", "It snows."], "answer": "It rains in Ulm."}
    endpoint = PeerEndpoint(replies=['{"reason": "r", "verdict": 0}', '{"reason": "r", "verdict": 1}'])
    arguments = ("--profile", profile, "--peer-prompts", "--metrics", "context_precision")
    result = await run_at(endpoint, write(tmp_path / "cases.jsonl", row), *arguments)
    [line] = json_lines(result.stdout)
    assert (result.exit_code, line["metric"], line["status"]) == (0, "context_precision", "ok")
    assert line["score"] == pytest.approx(0.5)
    assert all("It rains in Ulm." in prompt for prompt in endpoint.prompts)
    assert "judged by the answer, since there is no reference" in line["explanation"]


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


@pytest.mark.parametrize("profile", ["ragas", "ragas-legacy", "promptfoo"])
async def test_questions_made_from_the_answer_stand_beside_their_similarities(
    tmp_path: Path, profile: str
) -> None:
    [case] = [c for c in read_cases() if (c.case["id"], c.profile) == ("arel-mixed", profile)]
    endpoint = PeerEndpoint(replies=case.replies, embeddings=case.embeddings)
    arguments = ("--metrics", "answer_relevancy", "--profile", profile, "--peer-prompts")
    result = await run_at(endpoint, write(tmp_path / "cases.jsonl", case.row), *arguments)
    [line] = json_lines(result.stdout)
    made = line["intermediate"]
    assert len(made["questions"]) == len(made["similarities"]) == 3
    for question, similarity in zip(made["questions"], made["similarities"], strict=True):
        asked, other = case.embeddings[case.row["question"]], case.embeddings[question]
        assert similarity == pytest.approx(sum(a * b for a, b in zip(asked, other, strict=True)), abs=1e-3)


async def test_our_own_similarity_shows_the_questions_it_compared(tmp_path: Path) -> None:
    row = {"question": "How long?", "answer": "14 days."}
    said = json.dumps({"questions": ["When?", "How many days?"], "noncommittal": False})
    vectors = {"How long?": [1.0, 0.0], "When?": [0.6, 0.8], "How many days?": [0.8, 0.6]}
    endpoint = PeerEndpoint(replies=[said], embeddings=vectors)
    result = await run_at(endpoint, write(tmp_path / "r.jsonl", row), "--metrics", "question_similarity")
    [line] = json_lines(result.stdout)
    assert line["intermediate"]["questions"] == ["When?", "How many days?"]
    assert line["intermediate"]["similarities"] == [pytest.approx(0.6), pytest.approx(0.8)]
    assert line["score"] == pytest.approx(0.7)
