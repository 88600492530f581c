"""``ragtrace compare``: files of every kind, groups of a source, gates, and what could not be compared."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.program import json_lines, run
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.rag_spans import rag_trace

FACTS = [
    *("Refunds take 14 days.", "Returns are free.", "Orders ship from Oslo.", "Support answers by phone."),
    *("Gift cards never expire.", "Invoices come by mail."),
]
WRONG = "Refunds take 30 days."

Rows = Iterator[dict[str, Any]]


def records(number: int, *, wrong: Callable[[int], bool], version: str = "v1") -> Rows:
    """Yield records of six claims; in the wrong ones the first claim is contradicted: 0.83."""
    for at in range(number):
        answer = [WRONG if wrong(at) else FACTS[0], *FACTS[1:]]
        yield {
            "id": f"q{at}",
            "question": f"What are the rules of shop {at}?",
            "contexts": [{"id": "faq", "text": " ".join(FACTS)}],
            "answer": " ".join(answer),
            "prompt_version": version,
        }


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., Path]:
    """Judge records, and return the file of the report; its neighbor is the transcripts."""

    def judged(name: str, rows: Rows, *options: str) -> Path:
        (tmp_path / "script.json").write_text('{"answers": {}}')
        source, out = tmp_path / f"{name}.records.jsonl", tmp_path / f"{name}.jsonl"
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        result = run(
            *("evaluate", str(source), "--judge", f"scripted:{tmp_path / 'script.json'}"),
            *("--out", str(out), "--transcripts", str(out.with_suffix(".db")), *options),
        )
        assert result.exit_code == 0, result.stderr
        return out

    return judged


@pytest.fixture
def better(judge: Callable[..., Path]) -> tuple[Path, Path]:
    """Return the same questions twice: every answer has a wrong claim, then none."""
    return (
        judge("a", records(12, wrong=lambda _: True)),
        judge("b", records(12, wrong=lambda _: False, version="v2")),
    )


def as_json(*args: object, exit_code: int = 0) -> dict[str, Any]:
    told = run("compare", *map(str, args), "--json")
    assert told.exit_code == exit_code, told.stderr
    (found,) = json_lines(told.stdout)
    return found


def test_answers_that_changed_are_what_is_compared(better: tuple[Path, Path]) -> None:
    for kind in (".jsonl", ".db"):
        found = as_json(*(path.with_suffix(kind) for path in better))
        (metric,) = found["metrics"]
        mean = metric["mean"]
        assert (round(mean["first"], 2), mean["second"], round(mean["change"], 2)) == (0.83, 1.0, 0.17), kind
        assert 0 < mean["low"] < mean["change"] < mean["high"]
        assert not metric["pass_rate"]["is_chance"]
        assert (found["pairs"]["by_id"], metric["to_pass"], metric["to_fail"]) == (12, 12, 0), kind
        assert found["changes"][0]["claims"] == [{"text": WRONG, "first": "contradicted", "second": None}]
        assert found["notices"] == []


def test_people_see_it_in_80_columns(better: tuple[Path, Path]) -> None:
    told = run("compare", *map(str, better))
    assert told.exit_code == 0
    assert max(map(len, told.stdout.splitlines())) <= 80
    words = " ".join(told.stdout.split())
    assert "12 pairs (12 by record id)" in words
    assert "0.833 1.000 +0.167" in words
    assert "pairs that turn: 12 to pass, 0 to fail (McNemar p = 0.00049)" in words
    assert "What are the rules of shop 0?" in words
    assert f"contradicted | –: {WRONG}" in words  # noqa: RUF001 -- an en dash


def test_groups_of_a_source_are_paired_by_question(tmp_path: Path, judge: Callable[..., Path]) -> None:
    def row(number: int, version: str) -> dict[str, Any]:
        (found,) = records(1, wrong=lambda _: version == "v1", version=version)
        mark, case = ("?", str.upper) if version == "v1" else (" ", str.lower)
        return {**found, "id": f"{version}-{number}", "question": case(f"is “Shop {number}” open{mark}")}

    rows = [row(number, version) for number in range(5) for version in ("v1", "v2")]
    both = judge("both", iter(rows))
    found = as_json("v1", "v2", "--by", "prompt_version", "--from", both)
    assert found["pairs"] == {"by_id": 0, "by_question": 5, "same_texts": 0}
    assert found["metrics"][0]["to_pass"] == 5
    missing = run("compare", "v1", "v9", "--by", "prompt_version", "--from", str(both))
    assert missing.exit_code == 2
    assert "no answer with the prompt version 'v9'; it has v1, v2" in " ".join(missing.stderr.split())


def test_what_could_not_be_compared_is_told(judge: Callable[..., Path], better: tuple[Path, Path]) -> None:
    first, second = list(records(12, wrong=lambda _: False)), list(records(10, wrong=lambda _: False))
    first[0]["question"] = "Another question altogether?"
    second[1]["answer"] = None
    found = as_json(
        judge("first", iter(first)),
        judge("second", iter(second), "--threshold", "0.9", "--metrics", "faithfulness,context_relevance"),
    )
    notices = " ".join(found["notices"])
    assert "3 answers only in A and 1 only in B have no partner" in notices
    assert "1 answers have the same id, but another question" in notices
    assert "of 9 pairs, 1 have a score only in A, 0 only in B, 0 in neither" in notices
    assert "context_relevance ran only in B" in notices
    assert "judged by another version of the evaluator" in notices


def test_a_rule_fails_by_what_the_interval_shows(better: tuple[Path, Path]) -> None:
    a, b = better
    for rule, exit_code, said in (
        ("faithfulness mean worse by more than .02", 1, "failed: faithfulness, mean score: B is worse"),
        (
            "mean worse by more than 0.17",
            0,
            "cannot tell: faithfulness, mean score: the interval is too wide",
        ),
        ("mean possibly worse by more than 0.17", 1, "failed: faithfulness, mean score: the interval is too"),
        ("answer_relevance worse", 1, "answer_relevance is not in both A and B"),
    ):
        told = run("compare", str(b), str(a), "--fail-if", rule)
        assert (told.exit_code, said in " ".join(told.stderr.split())) == (exit_code, True), told.stderr
    assert run("compare", str(a), str(b), "--fail-if", "worse").exit_code == 0


def test_it_writes_a_comment_a_page_and_json(better: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("told.md", "told.html", "told.json"):
        out = ("--out", str(tmp_path / name), "--fail-if", "worse by more than 0.02")
        assert run("compare", *map(str, better), *out).exit_code == 0
        text = (tmp_path / name).read_text("utf-8")
        assert WRONG in text
        assert "faithfulness, pass rate: B is not worse by more than 0.02" in text
    assert (
        "| **faithfulness** mean score | 0.833 | 1.000 | +0.167 | +0." in (tmp_path / "told.md").read_text()
    )
    assert json.loads((tmp_path / "told.json").read_text())["is_paired"]


def test_text_of_others_steers_no_comment(judge: Callable[..., Path], tmp_path: Path) -> None:
    hostile = "@team <img src=x> [a](http://evil) | `x`\n# head"
    rows = [{**row, "question": hostile} for row in records(2, wrong=lambda _: True)]
    good = [{**row, "question": hostile} for row in records(2, wrong=lambda _: False)]
    a, b = judge("a", iter(rows)), judge("b", iter(good))
    run("compare", str(a), str(b), "--out", str(tmp_path / "told.md"))
    text = (tmp_path / "told.md").read_text()
    assert "@team" not in text
    assert "<img" not in text
    assert "[a](" not in text
    assert "\n# head" not in text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["plain.jsonl", "plain.jsonl"], "`ragtrace evaluate plain.jsonl --out judged.jsonl` judges records"),
        (["a", "b", "--fail-if", "slower"], "'slower' is no rule: write [METRIC]"),
        (["store:none.db", "store:none.db"], "there is no collector's store"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_compared_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.jsonl").write_text('{"question": "How long?", "answer": "14 days"}\n')
    told = run("compare", *args)
    assert told.exit_code == 2
    assert said in " ".join(told.stderr.split())


@pytest.mark.slow
async def test_two_versions_in_a_running_collector_are_compared_with_the_claims_that_changed(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    config = config_of(tmp_path, export=[{"endpoint": f"otlp-file:{out}"}])
    async with running_collector(config) as collector:
        for number, answer in enumerate(["Refunds take 14 days.", "Refunds take 30 days."] * 3):
            service = f"shop-{number % 2}"
            began_ns = time.time_ns() - 3_600 * 10**9
            question = f"How long do refunds take in {number // 2}?"
            spans = rag_trace(number, service=service, question=question, answer=answer, start_ns=began_ns)
            await post(collector, request_of(*spans))
        await until(lambda: out.exists() and out.read_bytes().count(b"ragtrace.schema") >= 6)
        store = f"store:{tmp_path / 'store.db'}"
        found = await asyncio.to_thread(as_json, "shop-0", "shop-1", "--by", "service", "--from", store)
    assert found["pairs"]["by_question"] == 3
    assert found["changes"][0]["claims"]
