"""``ragtrace rejudge``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ragtrace.traces.otlp import decode_json, encode_json
from ragtrace.traces.trace import Span
from tests.acceptance.judge_server import JudgeServer, running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.integration.cli.program import json_lines, run
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

_VERDICTS: Any = REPLIES["verify"]
LENIENT = {
    **REPLIES,
    "verify": {"verdicts": [{**verdict, "label": "supported"} for verdict in _VERDICTS["verdicts"]]},
}
"""The second claim is supported, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder with stored traces, what was judged of them, and where it went."""

    folder: Path

    @property
    def transcripts(self) -> str:
        return str(self.folder / "judged.db")

    @property
    def verdicts(self) -> Path:
        return self.folder / "verdicts.jsonl"

    def backfill(self, judge: JudgeServer, *options: str, model: str = "model-a", traces: int = 6) -> None:
        source = self.folder / "traces.jsonl"
        asked = [
            rag_trace(n, question=f"How long do refunds take in {n}?", answer=ANSWER) for n in range(traces)
        ]
        source.write_text("".join(f"{encode_json(spans)}\n" for spans in asked))
        result = run(
            *("backfill", "--from", f"otlp-file:{source}", "--to", f"otlp-file:{self.verdicts}"),
            *("--judge", f"openai:{model}", "--base-url", judge.base_url, "--yes", "--json"),
            *("--transcripts", self.transcripts, "--progress", str(self.folder / f"{model}.progress")),
            *options,
        )
        assert result.exit_code == 0, result.output

    def carriers(self) -> list[Span]:
        return [span for line in self.verdicts.read_text().splitlines() for span in decode_json(line)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    return Place(folder=tmp_path)


@pytest.fixture
def judge() -> Iterator[Callable[[Mapping[str, Any]], JudgeServer]]:
    with ExitStack() as stack:
        yield lambda replies: stack.enter_context(running_judge(replies))


@pytest.fixture
def judged(place: Place, judge: Callable[[Mapping[str, Any]], JudgeServer]) -> tuple[Place, JudgeServer]:
    server = judge(REPLIES)
    place.backfill(server)
    return place, server


def rejudged(*args: str, exit_code: int = 0) -> dict[str, Any]:
    result = run("rejudge", *args, "--json")
    assert result.exit_code == exit_code, result.output
    (told,) = json_lines(result.stdout)
    return told


def compared(place: Place) -> dict[str, Any]:
    """Compare the two judges of a place."""
    result = run("compare", f"{place.transcripts}#model-a", f"{place.transcripts}#model-b", "--json")
    assert result.exit_code == 0, result.output
    (told,) = json_lines(result.stdout)
    return told


def test_another_threshold_turns_labels_without_a_call(judged: tuple[Place, JudgeServer]) -> None:
    place, server = judged
    calls = server.calls
    told = rejudged("--transcripts", place.transcripts, "--threshold", "0.5")
    (faithfulness,) = told["metrics"]
    assert (told["pairs"]["same_texts"], faithfulness["to_fail"], faithfulness["to_pass"]) == (6, 0, 6)
    assert faithfulness["mean"]["change"] == 0
    assert (told["not_in_transcript"], told["b"]["cost_usd"], server.calls) == (0, 0, calls)


def test_what_was_never_asked_is_counted_and_not_asked(judged: tuple[Place, JudgeServer]) -> None:
    place, server = judged
    calls = server.calls
    told = rejudged(
        "--transcripts", place.transcripts, "--metrics", "faithfulness,context_relevance", exit_code=1
    )
    assert (told["not_in_transcript"], server.calls) == (6, calls)
    assert [metric["metric"] for metric in told["metrics"]] == ["faithfulness"]


def test_new_verdicts_name_the_ones_whose_place_they_take_and_are_sent_once(
    judged: tuple[Place, JudgeServer],
) -> None:
    place, _ = judged
    before = place.carriers()
    args = ("--transcripts", place.transcripts, "--threshold", "0.5", "--to", f"otlp-file:{place.verdicts}")
    assert rejudged(*args)["sent"] == 6
    new = place.carriers()[len(before) :]
    assert [span.attributes["ragtrace.eval.supersedes"] for span in new] == [span.span_id for span in before]
    assert {span.name for span in before} == {"evaluation fail"}
    assert {span.name for span in new} == {"evaluation pass"}
    again = rejudged(*(args[0], f"{place.transcripts}#model-a@{_versions(place)[0]}", *args[2:]))
    assert (again["sent"], len(place.carriers())) == (0, 12)


def test_people_see_both_sides_in_80_columns(judged: tuple[Place, JudgeServer]) -> None:
    place, _ = judged
    result = run("rejudge", "--transcripts", place.transcripts, "--threshold", "0.5")
    assert "compared with judged.db#openai:model-a@" in result.stdout
    assert "A: 12 calls, 1,200 + 240 tokens, cost unknown" in result.stderr
    assert "B: 0 calls" in result.stderr
    words = " ".join(result.stdout.split())
    assert "0.500 0.500 0.000" in words
    assert "pairs that turn: 6 to pass, 0 to fail (McNemar p = 0.031)" in words
    assert f"{trace_id_of(0)}:" in words
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_another_judge_is_asked_about_the_same_records_and_kept(
    judged: tuple[Place, JudgeServer], judge: Callable[[Mapping[str, Any]], JudgeServer]
) -> None:
    place, server = judged
    calls, lenient = server.calls, judge(LENIENT)
    asked = ("--judge", "openai:model-b", "--base-url", lenient.base_url)
    live = rejudged("--transcripts", place.transcripts, *asked, "--limit", "4")
    again = rejudged("--transcripts", f"{place.transcripts}#model-a", *asked, "--limit", "4")
    kept = compared(place)
    assert (live["pairs"]["by_id"], live["failed"], lenient.calls, server.calls) == (4, 0, 8, calls)
    assert (kept["pairs"]["by_id"], kept["a"]["answers"]) == (4, 6)
    assert kept["metrics"] == live["metrics"] == again["metrics"]


@pytest.mark.slow
def test_money_is_not_spent_before_somebody_agreed(judged: tuple[Place, JudgeServer]) -> None:
    args = ("--judge", "anthropic:claude-haiku-4-5")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", "not-a-key")
        result = run("rejudge", "--transcripts", judged[0].transcripts, *args)
    assert result.exit_code == 2
    assert "about 6 answers costs about $" in " ".join(result.stderr.split())
    assert "--yes spends it" in result.stderr


def test_a_file_of_several_evaluators_asks_for_one(
    place: Place, judge: Callable[[Mapping[str, Any]], JudgeServer]
) -> None:
    place.backfill(judge(REPLIES))
    place.backfill(judge(LENIENT), model="model-b")
    result = run("rejudge", "--transcripts", place.transcripts)
    assert result.exit_code == 2
    assert "judged.db#NAME" in result.stderr
    assert "openai:model-b@" in result.stderr


def _versions(place: Place) -> list[str]:
    result = run("rejudge", "--transcripts", place.transcripts)
    return [line.split("@")[1][:8] for line in result.stderr.splitlines() if "@" in line]


def test_kept_verdicts_are_scored_with_another_option_of_the_metrics(
    place: Place, judge: Callable[[Mapping[str, Any]], JudgeServer]
) -> None:
    unquoted = [{**verdict, "quote": ""} for verdict in _VERDICTS["verdicts"]]
    place.backfill(judge({**REPLIES, "verify": {"verdicts": unquoted}}))
    kept = ("rejudge", "--transcripts", place.transcripts)
    again = run(*kept, "--set", "evaluate.metrics.*.options.require_evidence=false", "--json")
    (told,) = json_lines(again.stdout)
    assert {one["names"][0][:32][-1] for one in told["changes"]} == set("123456")
    claim = {"text": "Refunds take 14 days.", "first": "unjudged", "second": "supported"}
    assert told["changes"][0]["claims"] == [claim]
    refused = run(*kept, "--set", "evaluate.metrics.*.options.evidence=false")
    assert refused.exit_code != 0
    assert "it has no option `evidence` (its options: `require_evidence`" in refused.output
