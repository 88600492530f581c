"""``--out`` of ``ragtrace backfill`` and ``ragtrace evaluate``."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from ragtrace.cli import INTERRUPTED
from ragtrace.cli.backfill_run import OVER_BUDGET
from tests.integration.cli.program import json_lines, run, start
from tests.integration.collector.paid_judge import PAID, paid, prices
from tests.patience import PATIENCE_S
from tests.unit.backfill.stored_traces import RIGHT, WRONG, plain_trace, rag_trace, trace_id, write_traces
from tests.unit.reports.reading import Page, csv_rows, json_rows, parquet_rows

SUFFIXES = (".html", ".jsonl", ".csv", ".parquet")


class Files:
    """What the tests read and write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        traces = [rag_trace(0, RIGHT), rag_trace(1, WRONG), rag_trace(2, None), plain_trace(3)]
        self.source = f"otlp-file:{write_traces(folder / 'traces.jsonl', traces)}"
        self.verdicts = folder / "verdicts"
        self.script({})

    def script(self, script: dict[str, object]) -> None:
        """Say what the judge says."""
        (self.folder / "script.json").write_text(json.dumps(script))

    @property
    def judge(self) -> str:
        """The judge that says it."""
        return f"scripted:{self.folder / 'script.json'}"

    def out(self, suffix: str) -> Path:
        """Where a report is written."""
        return self.folder / f"report{suffix}"

    def backfill(self, *args: str, suffixes: tuple[str, ...] = SUFFIXES) -> tuple[str, ...]:
        """The command."""
        outs = [arg for suffix in suffixes for arg in ("--out", str(self.out(suffix)))]
        to = f"otlp-file:{self.verdicts}"
        return ("backfill", "--from", self.source, "--to", to, "--judge", self.judge, *outs, *args)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_all_reports_of_a_run_tell_the_same(files: Files) -> None:
    args = files.backfill("--metrics", "faithfulness,hallucination", "--json")
    (told,) = json_lines(run(*args).stdout)
    rows, page = json_rows(files.out(".jsonl")), Page(files.out(".html"))
    assert parquet_rows(files.out(".parquet")) == rows
    assert [row["label"] for row in rows] == ["pass", "fail", "skipped"]
    cells = [(each["record_id"], each["metric"], each["score"]) for each in csv_rows(files.out(".csv"))]
    assert cells == [
        (row["record_id"], name, "" if metric["score"] is None else str(metric["score"]))
        for row in rows
        for name, metric in row["metrics"].items()
    ]
    for name in ("faithfulness", "hallucination"):
        scores = [row["metrics"][name]["score"] for row in rows]
        known = [score for score in scores if score is not None]
        assert f"Mean {sum(known) / len(known):.2f} , 95 % interval" in page.text
        assert f"of {len(known)} answers with a score" in page.text
    assert f"{told['judged']} judged" in page.text
    calls = sum(row["judged"]["evaluation"]["usage"]["calls"] for row in rows)
    assert f"calls to the judge {calls}" in page.text


def test_the_page_says_what_was_asked_for_and_what_was_left_out(files: Files) -> None:
    run(*files.backfill("--rate", "0.000001", suffixes=(".jsonl", ".html")))
    text = Page(files.out(".html")).text
    assert "selection --rate 1e-06" in text
    assert "sampled out 3 answers" in text
    assert "no RAG call 1 trace " in text


def test_a_second_run_that_judges_nothing_leaves_the_reports_as_they_are(files: Files) -> None:
    run(*files.backfill())
    before = {suffix: files.out(suffix).read_bytes() for suffix in SUFFIXES}
    again = run(*files.backfill())
    assert {suffix: files.out(suffix).read_bytes() for suffix in SUFFIXES} == before
    assert again.stderr.count("nothing was judged") == 4


@pytest.fixture
def asked(files: Files, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options of a judge that costs money."""
    name = request.node.name.replace("_", "")
    paid(name)
    return (
        "--judge",
        f"{PAID}{name}",
        "--set",
        f"judge.prices={prices(files.folder, name)}",
        "--concurrency",
        "1",
        "--yes",
    )


def test_a_run_without_budget_reports_what_it_judged_and_the_rest_is_added(
    files: Files, asked: tuple[str, ...]
) -> None:
    assert run(*files.backfill(*asked, "--max-calls", "2")).exit_code == OVER_BUDGET
    page, rows = Page(files.out(".html")), json_rows(files.out(".jsonl"))
    assert "This run ended before its end: the budget is spent" in page.text
    assert "not begun 2 answers" in page.text
    assert [(row["trace_id"], row["label"]) for row in rows] == [(trace_id(0), "pass")]
    assert f"money ${rows[0]['cost_usd']:.2f}" in page.text
    run(*files.backfill(*asked, "--resume", suffixes=(".jsonl",)))
    assert [row["trace_id"] for row in json_rows(files.out(".jsonl"))] == [trace_id(n) for n in range(3)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_report_that_cannot_be_written_fails_before_the_judge_is_asked(files: Files, suffix: str) -> None:
    files.script({"error": "judge_refused"})
    result = run(*files.backfill("--out", str(files.folder / "nowhere" / f"r{suffix}")))
    assert result.exit_code == 2
    assert "nowhere" in result.stderr
    assert "No such file or directory" in result.stderr
    assert not files.verdicts.exists()
    assert not list(files.folder.glob("report*"))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--out", "report.txt"), "must end with .html, .jsonl, .csv, .parquet"),
        (("--set", "ui.links.x=javascript:alert({trace_id})"), "write a URL with {trace_id}"),
        (("--set", "ui.links.x=http://jaeger/trace"), "write a URL with {trace_id}"),
        (("--out", "report.html", "--dry-run"), "--dry-run judges none without --pilot"),
    ],
)
def test_wrong_options_are_told(files: Files, args: tuple[str, ...], told: str) -> None:
    result = run(*files.backfill(*args, suffixes=()))
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_rows_that_cannot_be_read_are_counted_in_the_report(files: Files) -> None:
    records = files.folder / "records.jsonl"
    records.write_text(json.dumps({"question": "?", "contexts": [RIGHT], "answer": RIGHT}) + "\nnot JSON\n")
    outs = [arg for suffix in SUFFIXES for arg in ("--out", str(files.out(suffix)))]
    assert run("evaluate", str(records), "--judge", files.judge, *outs).exit_code == 2
    assert len(json_rows(files.out(".jsonl"))) == len(parquet_rows(files.out(".parquet"))) == 1
    assert "unreadable 1 row" in Page(files.out(".html")).text


def test_an_error_before_anything_is_judged_leaves_earlier_reports(files: Files) -> None:
    files.out(".html").write_text("an earlier report")
    result = run(*files.backfill()[:3], "--to", "http://127.0.0.1:9", "--out", str(files.out(".html")))
    assert result.exit_code == 1
    assert files.out(".html").read_text() == "an earlier report"
    assert not list(files.folder.glob("*.partial"))


def stopped_at_the_fifth_answer(files: Files, by: signal.Signals) -> tuple[int, bytes]:
    """Run the command in a process that gets a signal while it judges; return its exit code and talk."""
    write_traces(files.folder / "traces.jsonl", [rag_trace(number) for number in range(8)])
    code = f"""
import os
from ragtrace.judge import ScriptedJudge
def open_it(settings):
    calls, scripted = [], ScriptedJudge()
    def respond(request):
        calls.append(request)
        if len(calls) == 9:
            os.kill(os.getpid(), {by.value})
        return scripted.reply_to(request)
    return ScriptedJudge(respond)
"""
    (files.folder / "judge.py").write_text(code)
    judge = ("--judge", f"{files.folder / 'judge.py'}:open_it", "--concurrency", "1", "--json")
    process = start(*files.backfill(*judge))
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


@pytest.mark.slow
def test_what_was_judged_before_ctrl_c_is_reported(files: Files) -> None:
    code, said = stopped_at_the_fifth_answer(files, signal.SIGINT)
    assert (code, b"stopped; the same command with --resume" in said) == (INTERRUPTED, True)
    rows = json_rows(files.out(".jsonl"))
    assert 4 <= len(rows) < 8
    assert parquet_rows(files.out(".parquet")) == rows
    assert len(csv_rows(files.out(".csv"))) == len(rows)
    page = Page(files.out(".html")).text
    assert "This run ended before its end: it was stopped." in page
    assert f"{len(rows)} judged" in page


@pytest.mark.slow
def test_rows_of_a_run_that_was_killed_stay_and_an_earlier_page_too(files: Files) -> None:
    files.out(".html").write_text("an earlier page")
    code, _ = stopped_at_the_fifth_answer(files, signal.SIGKILL)
    assert code == -signal.SIGKILL
    rows = json_rows(files.out(".jsonl"))
    assert [row["trace_id"] for row in rows] == [trace_id(number) for number in range(len(rows))]
    assert 0 < len(rows) <= 4
    assert len(csv_rows(files.out(".csv"))) == len(rows)
    assert files.out(".html").read_text() == "an earlier page"
    assert not files.out(".parquet").exists()
