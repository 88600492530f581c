"""``ragtrace backfill``."""

from __future__ import annotations

import asyncio
import fcntl
import gzip
import json
import multiprocessing
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ragtrace import semconv
from ragtrace.backfill import Progress
from ragtrace.cli.backfill_run import OVER_BUDGET
from ragtrace.model import Sample
from ragtrace.traces.otlp import decode, decode_json, encode, encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.ledger import State
from ragtrace_collector.store.records import Job
from ragtrace_collector.store.store import Store
from tests.acceptance.judge_server import running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.backends.otlp_receiver import OtlpReceiver
from tests.backends.process import free_ports
from tests.batch_server import BatchServer, running_batch_server
from tests.corpora import CORPORA, Corpus
from tests.gullible_model import gullible_reply, running_gullible_model
from tests.integration.cli.faulty_servers import DOWN, FaultyServer, faulty_tempo
from tests.integration.cli.program import COMMAND, json_lines, run, run_quietly
from tests.integration.cli.terminal import OnTerminal
from tests.integration.collector.paid_judge import PAID, paid, prices
from tests.patience import PATIENCE_S
from tests.rag_spans import START_NS, trace_id_of
from tests.rag_spans import rag_trace as rag_spans
from tests.typical_model import Habits, TypicalModel, running_typical_model
from tests.unit.backends.servers import HttpAnswer
from tests.unit.backfill.stored_traces import RIGHT, WRONG, plain_trace, rag_trace, trace_id, write_traces
from tests.unit.traces.builders import a_span


@pytest.fixture
def source(tmp_path: Path) -> str:
    traces = [rag_trace(0, RIGHT), rag_trace(1, WRONG), rag_trace(2, None), plain_trace(3)]
    return f"otlp-file:{write_traces(tmp_path / 'traces.jsonl', traces)}"


@pytest.fixture
def scripted(tmp_path: Path) -> str:
    (tmp_path / "script.json").write_text("{}")
    return f"scripted:{tmp_path / 'script.json'}"


def test_verdicts_go_to_a_file_and_a_second_run_adds_nothing(
    source: str, scripted: str, tmp_path: Path
) -> None:
    verdicts = tmp_path / "verdicts.jsonl"
    args = ("backfill", "--from", source, "--to", f"otlp-file:{verdicts}", "--judge", scripted, "--json")
    (first,) = json_lines(run(*args).stdout)
    written = verdicts.read_bytes()
    (second,) = json_lines(run(*args).stdout)
    assert (first["judged"], first["ineligible"], first["sent"]) == (2, {"no_content": 1}, 3)
    assert (second["already_evaluated"], second["sent"], second["usage"]["calls"]) == (3, 0, 0)
    assert verdicts.read_bytes() == written
    names = [span.name for line in written.splitlines() for span in decode_json(line.decode())]
    assert names == ["evaluation pass", "evaluation fail", "evaluation skipped"]


def test_people_see_a_row_an_answer_and_numbers_that_add_up(
    source: str, scripted: str, tmp_path: Path
) -> None:
    result = run("backfill", "--from", source, "--to", f"otlp-file:{tmp_path / 'out'}", "--judge", scripted)
    assert result.exit_code == 0
    assert f"{trace_id(1)}   0.00  fail" in result.stdout
    assert "contradicted  Orders can be returned within 30 days." in result.stdout
    assert "faq-12: “Orders can be returned within 14 days.”" in result.stdout
    assert "judged             2 (fail 1, pass 1)" in result.stdout
    assert "judge: scripted" in result.stderr
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.slow
def test_dry_run_asks_no_judge_sends_nothing_and_estimates(source: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    judge = ("--judge", "openai:some-model", "--base-url", f"http://127.0.0.1:{port}/v1")
    out = tmp_path / "out.jsonl"
    result = run("backfill", "--from", source, "--to", f"otlp-file:{out}", *judge, "--dry-run", "--json")
    (plan,) = json_lines(result.stdout)
    assert (plan["dry_run"], plan["judged"], plan["sent"]) == (True, 2, 0)
    assert (plan["ineligible"], plan["usage"]["calls"]) == ({"no_content": 1}, 0)
    assert plan["estimate"]["calls"] == {"low": 3, "likely": 4, "high": 6}
    assert (plan["estimate"]["usd"], plan["pilot"]) == (None, None)
    assert not out.exists()
    people = run("backfill", "--from", source, *judge, "--dry-run").stdout
    assert "calls       4 (3 to 6)" in people


def test_a_destination_that_is_not_there_fails_before_the_judge_is_asked(source: str, scripted: str) -> None:
    (port,) = free_ports(1)
    result = run(
        "backfill", "--from", source, "--to", f"http://127.0.0.1:{port}/v1/traces", "--judge", scripted
    )
    assert result.exit_code == 1
    assert f"127.0.0.1:{port}" in result.stderr
    assert "fail" not in result.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--since", "yesterday"), "write how long ago (2h, 7d) or a date"),
        (("--since", "1h", "--until", "2h"), "--since 1h is not before --until 2h"),
        (("--tag", "error"), "write KEY=VALUE"),
        (("--traceql", "{}", "--service", "shop"), "--traceql replaces"),
        (("--trace-id", "ab", "--since", "1h"), "leave out the options that search for them"),
        (("--resume",), "there is no stopped run of this search"),
        (("--from-header", "a=${env:NOWHERE}"), "the environment variable NOWHERE is not set"),
    ],
)
def test_wrong_options_are_told_with_what_to_write(source: str, args: tuple[str, ...], told: str) -> None:
    result = run("backfill", "--from", source, "--dry-run", *args)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_files_are_selected_by_service_time_and_tag(tmp_path: Path, scripted: str) -> None:
    source = f"otlp-file:{write_traces(tmp_path / 'traces.jsonl', [rag_trace(0), rag_trace(1)])}"
    args = ("backfill", "--from", source, "--dry-run", "--judge", scripted, "--json", "--min-age", "0s")
    for chosen, number in (
        (("--since", "2026-01-01"), 2),
        (("--since", "2026-01-01", "--until", "2026-01-02"), 0),
        (("--since", "2026-01-01", "--service", "nobody"), 0),
        (("--since", "2026-01-01", "--tag", "ragtrace.kind=retrieval"), 2),
        (("--since", "2026-01-01", "--tag", "ragtrace.kind=nothing"), 0),
    ):
        (plan,) = json_lines(run(*args, *chosen).stdout)
        assert plan["traces"] == number, chosen


def test_a_judged_answer_that_could_not_be_sent_is_sent_by_the_next_run(
    source: str, scripted: str, otlp_receiver: Callable[[], OtlpReceiver]
) -> None:
    receiver = otlp_receiver()
    with Progress(Progress.default_path(source=source, destination=receiver.endpoint)) as progress:
        asyncio.run(progress.keep("ab" * 16, "cd" * 8, encode([a_span(1)])))
    (report,) = json_lines(
        run("backfill", "--from", source, "--to", receiver.endpoint, "--judge", scripted, "--json").stdout
    )
    assert report["sent"] == 4
    assert a_span(1).span_id in {span.span_id.hex() for span in receiver.wait_for_spans(4)}


def test_a_second_run_over_one_progress_file_pays_for_nothing(
    source: str, scripted: str, tmp_path: Path
) -> None:
    path = tmp_path / "progress.db"
    args = ("--from", source, "--to", f"otlp-file:{tmp_path / 'out'}", "--judge", scripted)
    with Progress(path):
        result = run("backfill", *args, "--progress", str(path))
    assert result.exit_code == 2
    assert f"'{path}' cannot be used: another back-fill is using it" in result.stderr.replace("\n", "")
    assert not (tmp_path / "out").exists()
    assert run("backfill", *args, "--progress", str(path)).exit_code == 0


ANSWERS = 8
SINCE, UNTIL = "2025-10-09T08:53:20Z", "2025-10-09T08:53:40Z"  # START_NS, and twenty seconds later
STORED = [rag_spans(number, start_ns=START_NS + number * 10**9) for number in range(ANSWERS)]
IDS = [trace_id_of(number) for number in range(ANSWERS)]


class Outcome(NamedTuple):
    """What became of a run."""

    code: int
    report: dict[str, Any]
    said: str


@pytest.fixture
def backfill(tmp_path: Path) -> Callable[..., Outcome]:
    """Back-fill from a source into a file."""
    (tmp_path / "script.json").write_text("{}")
    asked = ("--judge", f"scripted:{tmp_path / 'script.json'}", "--concurrency", "2", "--json")

    def begin(source: str, *args: str) -> Outcome:
        to = f"otlp-file:{tmp_path / 'verdicts.jsonl'}"
        result = run("backfill", "--from", source, "--to", to, *asked, *args)
        found = json_lines(result.stdout)
        return Outcome(result.exit_code, found[0] if found else {}, " ".join(result.stderr.split()))

    return begin


@pytest.fixture
def search(backfill: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Search a server for what is stored in it."""

    def begin(server: FaultyServer, *args: str, kind: str = "tempo") -> Outcome:
        named = ("--service", "shop") if "--service" not in args else ()
        return backfill(f"{kind}:{server.url}", "--since", SINCE, "--until", UNTIL, *named, *args)

    return begin


def judged(folder: Path) -> Counter[str]:
    """Count the verdicts by trace."""
    lines = (folder / "verdicts.jsonl").read_text().splitlines()
    return Counter(span.trace_id for line in lines for span in decode_json(line))


@pytest.mark.slow
def test_an_unknown_service_is_told_with_those_that_are_known(search: Any) -> None:
    with faulty_tempo([]) as server:
        server.stored = STORED
        server.fault = lambda path: HttpAnswer(body=b"{}") if "/api/search?" in path else None
        outcome = search(server, "--service", "shpo", kind="tempo")
    assert (outcome.code, outcome.report["traces"]) == (0, 0)
    assert "there is no service 'shpo', but shop" in outcome.said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (HttpAnswer(status=401), "refused the credentials (401): give a token"),
        (HttpAnswer(body=b"\n <!doctype html><title>Sign in</title>"), "answered 200 with a web page"),
        (
            HttpAnswer(status=302, headers={"location": "https://login/?next=x"}),
            "redirects to login, which is not followed: is this the",
        ),
    ],
    ids=["401", "login page", "redirect"],
)
def test_a_wrong_address_or_login_is_told_and_nothing_is_judged(
    search: Any, answer: HttpAnswer, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "t-secret")
    answer.headers.setdefault("retry-after", "0")
    with faulty_tempo(STORED) as server:
        server.fault = lambda _: answer
        outcome = search(server, "--from-header", "Authorization=Bearer ${env:TOKEN_OF_MINE}", kind="tempo")
    assert (outcome.code, outcome.report) == (1, {})
    assert told in outcome.said
    assert "t-secret" not in outcome.said


@pytest.mark.slow
def test_after_a_server_was_down_for_long_the_rest_is_judged_once(search: Any, tmp_path: Path) -> None:
    with faulty_tempo(STORED) as server:
        server.fault = lambda _: DOWN if len(server.paths) > 4 else None
        first = search(server)
        server.fault = lambda _: None
        second = search(server, "--resume")
    assert (first.code, first.report["judged"]) == (1, 3)
    assert "answered 503: upstream connect error (tried 100 times)" in first.said
    assert "broken off; the same command with --resume continues from here" in first.said
    assert (second.code, second.report["judged"], second.report["already_evaluated"]) == (0, ANSWERS - 3, 3)
    assert judged(tmp_path) == Counter(IDS)


@pytest.mark.slow
def test_a_trace_that_cannot_be_read_does_not_stop_the_others(search: Any, tmp_path: Path) -> None:
    with faulty_tempo(STORED) as server:
        server.fault = lambda path: DOWN if IDS[3] in path else None
        first = search(server)
        server.fault = lambda _: None
        second = search(server, "--resume")
    assert (first.code, first.report["judged"], first.report["unread"]) == (1, ANSWERS - 1, [IDS[3]])
    assert (second.code, second.report["judged"]) == (0, 1)
    assert judged(tmp_path) == Counter(IDS)


def lines_of(traces: Sequence[Sequence[Span]]) -> str:
    return "".join(f"{encode_json(spans)}\n" for spans in traces)


@pytest.mark.slow
def test_files_that_are_cut_off_or_no_otlp_are_told_and_the_rest_is_judged(
    backfill: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "stored"
    folder.mkdir()
    whole, half = lines_of(STORED[:2]), lines_of(STORED[2:4])
    (folder / "1.jsonl").write_text(whole + half[: len(half) - 200])
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(lines_of(STORED[4:5]).encode())[:-30])
    (folder / "3.jsonl").write_bytes(b"{not OTLP\n" + lines_of(STORED[5:6]).encode())
    (folder / "4.empty").touch()
    outcome = backfill(f"otlp-file:{folder}")
    assert {IDS[0], IDS[1], IDS[2], IDS[5]} <= set(judged(tmp_path))
    assert outcome.code == 1
    assert "1.jsonl, line 4" in outcome.said
    assert "2.jsonl.gz: cannot be decompressed to its end" in outcome.said
    assert "3.jsonl, line 1" in outcome.said


@pytest.mark.slow
def test_on_a_terminal_the_line_stands_below_outcomes_that_it_does_not_break(tmp_path: Path) -> None:
    answers = 5
    with running_judge(REPLIES) as judge:
        to = (
            "--from",
            f"otlp-file:{stored(tmp_path, answers)}",
            "--to",
            f"otlp-file:{tmp_path / 'out.jsonl'}",
        )
        asked = ("--judge", "openai:gpt-4o-mini", "--base-url", judge.base_url, "--max-cost", "5", "--yes")
        shown = OnTerminal(("backfill", *to, *asked))
        shown.finish()
    assert shown.process.returncode == 0, shown.drawn
    assert re.search(r"judged · |\d of \d", shown.drawn)
    assert "of $5.00" in shown.drawn
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.drawn)
    rows = re.findall(r"([0-9a-f]{32})   0\.\d\d  (?:pass|fail)", plain)
    assert rows == [trace_id_of(each) for each in range(answers)]


def stored(folder: Path, answers: int) -> Path:
    file = folder / "traces.jsonl"
    file.write_text("".join(f"{encode_json(rag_spans(each, answer=ANSWER))}\n" for each in range(answers)))
    return file


CONFIG = """
export: [{endpoint: "http://localhost:4317"}]
store: {path: "%s"}
budget: {backfill: {month: 8 calls}}
"""


@pytest.fixture
def config(path: Path, tmp_path: Path) -> Path:
    """A configuration that lets back-fill ask eight times a month: a day may end while a test runs."""
    file = tmp_path / "collector.yaml"
    file.write_text(CONFIG % path)
    return file


async def queue_live_answer(store: Store, trace_id: str = "a") -> None:
    job = Job(trace_id=trace_id, span_id="s", sample=Sample(rule="ratio", rate=1.0, probability=1.0))
    await store.decide_trace(trace_id, jobs=[job], outcomes=[], keep_spans=False, now_ns=time.time_ns())


async def judge_live_answer(store: Store) -> None:
    (job,) = await store.take_jobs(1, now_ns=time.time_ns())
    await store.finish(job, State.JUDGED, outbox_items={}, now_ns=time.time_ns())


@pytest.mark.slow
async def test_a_run_shows_whom_it_waits_for_and_judges_then(
    store: Store, path: Path, config: Path, tmp_path: Path
) -> None:
    await queue_live_answer(store)
    out = tmp_path / "out.jsonl"
    traces = write_traces(tmp_path / "traces.jsonl", [rag_trace()])
    to = ("--to", f"otlp-file:{out}", "--collector", str(config), "--judge", "lexical")
    shown = OnTerminal(("backfill", "--from", f"otlp-file:{traces}", *to))
    await asyncio.to_thread(shown.read_until, "waiting for 1 live")
    assert not out.exists()
    await judge_live_answer(store)
    await asyncio.to_thread(shown.finish)
    assert (shown.process.returncode, out.read_text().count("\n")) == (0, 1)


async def test_back_fill_spends_from_its_own_purse_of_the_collector(
    store: Store, config: Path, tmp_path: Path
) -> None:
    traces = write_traces(tmp_path / "traces.jsonl", [rag_trace(number) for number in range(6)])
    asked = (
        *("--judge", f"{PAID}beside", "--set", "judge.prices=" + prices(tmp_path, "beside")),
        *("--concurrency", "1", "--yes"),
    )
    to = ("--to", f"otlp-file:{tmp_path / 'out.jsonl'}", "--collector", str(config), "--json")
    result = await asyncio.to_thread(run, "backfill", "--from", f"otlp-file:{traces}", *to, *asked)
    (report,) = json_lines(result.stdout)
    assert (result.exit_code, report["judged"], report["left"]) == (OVER_BUDGET, 4, 2)
    assert paid("beside").calls == 8
    assert "the budget `backfill` has nothing left (month_calls)" in result.stderr
    shown = await asyncio.to_thread(run, "ledger", "--config", str(config), "--json")
    assert [(each["limit"], each["left"]) for each in json.loads(shown.stdout)["limits"]] == [
        ("month_calls", 0)
    ]


AMOUNTS = ("calls", "input_tokens", "output_tokens", "usd")
PER_MILLION = {
    "gpt-4o-mini": (0.15, 0.60),
    "gpt-4.1-nano": (0.10, 0.40),
    "gpt-4o": (2.50, 10.0),
    "gpt-4.1": (2.0, 8.0),
}


def told(*args: str) -> Mapping[str, Any]:
    result = run("backfill", *args, "--json")
    assert result.exit_code == 0, result.output
    (line,) = json_lines(result.stdout)
    return line


def actual(model: TypicalModel, name: str) -> dict[str, float]:
    """What the provider counted."""
    of_input, of_output = PER_MILLION[name]
    usd = (model.input_tokens * of_input + model.output_tokens * of_output) / 1e6
    amounts = (model.calls, model.input_tokens, model.output_tokens, usd)
    return dict(zip(AMOUNTS, amounts, strict=True))


def misses(estimate: Mapping[str, Any], spent: Mapping[str, float]) -> dict[str, Any]:
    return {
        name: (estimate[name], amount)
        for name, amount in spent.items()
        if not estimate[name]["low"] - 1e-9 <= amount <= estimate[name]["high"] + 1e-9
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "corpus",
    [
        pytest.param(corpus, id=name, marks=[pytest.mark.night] * (name != "long answers"))
        for name, corpus in CORPORA.items()
    ],
)
def test_the_run_costs_what_the_dry_run_said_from_sizes_and_from_a_pilot(
    corpus: Corpus, tmp_path: Path
) -> None:
    source = write_traces(tmp_path / "traces.jsonl", corpus.traces())
    with running_typical_model(corpus.habits) as model:
        judge = ("--judge", f"openai:{corpus.model}", "--base-url", model.url, "--metrics", corpus.metrics)
        args = ("--from", f"otlp-file:{source}", "--to", f"otlp-file:{tmp_path / 'verdicts.jsonl'}", *judge)
        sizes = told(*args, "--dry-run")["estimate"]
        assert model.calls == 0
        pilot = told(*args, "--dry-run", "--pilot", "15")
        report = told(*args, "--yes")
    spent = actual(model, corpus.model)
    assert (pilot["pilot"]["usage"]["calls"] + report["usage"]["calls"]) == spent["calls"]
    assert (misses(sizes, spent), misses(pilot["estimate"], spent)) == ({}, {})


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces.jsonl", [rag_trace(number) for number in range(12)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("judge", "refused"),
    [
        pytest.param(("lexical",), False, id="code"),
        pytest.param(("openai:own",), False, id="no price, on this machine"),
        pytest.param(("openai:gpt-4o-mini",), True, id="a price, on this machine: a gateway"),
        pytest.param(("openai:gpt-4o-mini", "--yes"), False, id="agreed to"),
        pytest.param(("openai:own", "--set", "judge.second=openai:gpt-4o-mini"), True, id="the second costs"),
    ],
)
def test_who_may_cost_money_is_not_asked_without_a_yes(
    traces: Path, tmp_path: Path, judge: tuple[str, ...], refused: bool
) -> None:
    with running_typical_model(Habits()) as model:
        url = ("--base-url", model.url) if judge[0] != "lexical" else ()
        args = ("--from", f"otlp-file:{traces}", "--to", f"otlp-file:{tmp_path / 'out'}", "--judge", *judge)
        result = run("backfill", *args, *url)
    assert result.exit_code == (2 if refused else 0)
    assert ("there is no terminal to ask on" in " ".join(result.stderr.split())) == refused
    assert not (refused and model.calls)


@pytest.mark.slow
def test_people_are_told_what_a_pilot_found_and_the_run_says_it_before_it_goes_on(
    traces: Path, tmp_path: Path
) -> None:
    with running_typical_model(Habits()) as model:
        judge = ("--judge", "openai:gpt-4o-mini", "--base-url", model.url)
        args = ("--from", f"otlp-file:{traces}", "--to", f"otlp-file:{tmp_path / 'out'}", *judge)
        planned = run("backfill", *args, "--dry-run", "--pilot", "5")
        assert not (tmp_path / "out").exists()
        done = run("backfill", *args, "--pilot", "6", "--yes")
    assert "estimate for 12 answers, from 5 that were judged (95 %):" in planned.stdout
    assert ", prices of 20" in planned.stdout
    assert "the run sends its verdicts" in planned.stdout
    assert "estimate for 7 answers, from 6 that were judged (95 %):" in done.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 12
    assert max(map(len, planned.stdout.splitlines())) <= 80


CTRL_C = "\x03"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "judged"), [("y\n", 12), ("\n", 0), (CTRL_C, 0)])
def test_on_a_terminal_the_estimate_is_shown_and_agreed_to(
    traces: Path, tmp_path: Path, answer: str, judged: int
) -> None:
    leader, follower = pty.openpty()
    out = tmp_path / "out.jsonl"
    with running_typical_model(Habits(malformed=0.0)) as model:
        judge = ("--judge", "openai:gpt-4o-mini", "--base-url", model.url)
        process = subprocess.Popen(
            [*COMMAND, "backfill", "--from", f"otlp-file:{traces}", "--to", f"otlp-file:{out}", *judge],
            stdin=follower,
            stdout=subprocess.DEVNULL,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(follower)
        shown = until(leader, "continue? [y/N]")
        assert model.calls == 0
        os.write(leader, answer.encode())
        if answer == CTRL_C:
            shown += until(leader, "Aborted!", again=CTRL_C)  # and no second one while it goes
        shown += until(leader, None)
        assert process.wait(timeout=PATIENCE_S) == (0 if judged else 1)
    assert "estimate for 12 answers, from their sizes" in shown
    assert ("Aborted!" in shown) == (not judged)
    assert (len(out.read_text().splitlines()) if out.exists() else 0) == judged


def until(leader: int, text: str | None, *, again: str = "") -> str:
    """Read a terminal until it shows a text, or whoever wrote to it is gone.

    A signal that comes between the prompt and the system's call to read is noted and interrupts nothing: as a
    person would, press the key ``again`` while nothing happens.
    """
    shown = b""
    while text is None or text.encode() not in shown:
        while again and not select.select([leader], [], [], 1)[0]:
            os.write(leader, again.encode())
        try:
            piece = os.read(leader, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    return shown.decode()


PAID_ANSWERS = 12


def _name(request: pytest.FixtureRequest) -> str:
    return "".join(filter(str.isalnum, request.node.name))


@pytest.fixture
def spending(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Back-fill a file of answers by a judge that costs; returns exit code, report and what was said."""
    traces = [rag_trace(number) for number in range(PAID_ANSWERS)]
    source = f"otlp-file:{write_traces(tmp_path / 'traces.jsonl', traces)}"
    name = _name(request)

    def begin(*args: str) -> tuple[int, dict[str, Any], str]:
        to = f"otlp-file:{tmp_path / 'verdicts.jsonl'}"
        asked = (
            *("--judge", f"{PAID}{name}", "--set", "judge.prices=" + prices(tmp_path, name)),
            *("--concurrency", "1", "--yes"),
        )
        result = run("backfill", "--from", source, "--to", to, *asked, "--json", *args)
        found = json_lines(result.stdout)
        return result.exit_code, found[0] if found else {}, " ".join(result.stderr.split())

    return begin


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Any:
    return paid(_name(request))


def test_at_the_limit_nothing_more_is_begun_and_what_is_left_is_told(spending: Any, judge: Any) -> None:
    code, report, said = spending("--max-calls", "9")
    assert (code, judge.calls) == (OVER_BUDGET, 9)
    assert (report["judged"], report["left"], report["sent"]) == (4, PAID_ANSWERS - 4, 4)
    assert report["judged"] + report["left"] == report["records"]
    assert "9 of 9 calls are spent, and the next request may take 1" in said
    assert f"{PAID_ANSWERS - 4} answers left" in said
    assert "--resume" in said


def test_what_was_spent_stays_spent_for_a_run_that_goes_on(spending: Any, judge: Any) -> None:
    spending("--max-calls", "8")
    code, report, _ = spending("--max-calls", "8", "--resume")
    assert (code, report["judged"], judge.calls) == (OVER_BUDGET, 0, 8)
    code, report, _ = spending("--max-calls", "24", "--resume")
    assert (code, report["judged"], report["already_evaluated"], judge.calls) == (0, 8, 4, 24)


@pytest.mark.parametrize("limit", [("--max-cost", "60"), ("--max-tokens", "6000")])
def test_money_and_tokens_are_never_exceeded(spending: Any, limit: tuple[str, str]) -> None:
    code, report, said = spending(*limit)
    used = report["usage"]["input_tokens"] + report["usage"]["output_tokens"]
    assert code == OVER_BUDGET
    assert 0 < used <= 6_000  # a token costs a cent
    assert "are spent, and the next request may take" in said


def test_a_judge_without_a_price_is_refused_where_money_is_limited(spending: Any) -> None:
    code, _, said = spending("--max-cost", "5", "--judge", f"{PAID}unknown")
    assert code == 2
    assert "there is no price for paid:unknown: name it in a file for --set judge.prices=FILE" in said


WHOLE, CUT = "Refunds take 14 days.", "Orders are packed by hand. " * 100


def trace(number: int, *chunks: str, cut: int | None = None) -> list[Span]:
    """Return a trace whose chunks stand in one JSON string, cut after so many characters."""
    documents = json.dumps([{"id": f"c{rank}", "content": text} for rank, text in enumerate(chunks)])[:cut]
    return [
        replace(span, attributes={**span.attributes, semconv.RAG_DOCUMENTS: documents})
        if semconv.RAG_DOCUMENTS in span.attributes
        else span
        for span in rag_spans(number)
    ]


def judged_cut(cut_source: str, out: Path, judge: str, *args: str) -> tuple[dict[str, Any], list[Span]]:
    """Return the report and the carriers."""
    to = ("--to", f"otlp-file:{out}", "--judge", judge, "--json")
    (report,) = json_lines(run("backfill", "--from", cut_source, *to, *args).stdout)
    return report, [span for line in out.read_text().splitlines() for span in decode_json(line)]


@pytest.fixture
def cut_source(tmp_path: Path) -> str:
    """A whole context, one of which a chunk is whole, and one of which none is."""
    stored = [trace(0, WHOLE), trace(1, WHOLE, CUT, cut=2_048), trace(2, CUT, cut=2_048)]
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(f"{encode_json(spans)}\n" for spans in stored))
    return f"otlp-file:{file}"


def test_on_request_whole_chunks_are_judged_and_the_verdict_is_marked(
    cut_source: str, scripted: str, tmp_path: Path
) -> None:
    report, carriers = judged_cut(
        cut_source,
        tmp_path / "out.jsonl",
        scripted,
        *("--set", "evaluate.metrics.*.options.judge_truncated=true"),
    )
    assert (report["judged"], report["ineligible"]) == (2, {"truncated": 1})
    marks = [span.attributes.get(semconv.EVAL_INPUT_TRUNCATED) for span in carriers]
    assert marks == [False, True, False]
    assert carriers[1].attributes["ragtrace.label.faithfulness"] == "pass"


BATCHED: Final = (RIGHT, WRONG, "Refunds take 5 working days.")
STEPS: Final = (
    "export",  # an empty one, before money is spent
    *("upload", "create", "retrieve", "retrieve", "content"),  # the claims
    *("upload", "create", "retrieve", "retrieve", "content"),  # their verdicts
    *("export", "export", "export"),
)

# forked off a server that has imported everything: that takes milliseconds
_processes: Final = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        *("openai", "rich.console", "ragtrace.cli.backfill_run", "ragtrace.judge.batch"),
        *("ragtrace.judge.openai", "ragtrace.metrics.faithfulness", "tests.integration.cli.program"),
    ]
)


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with running_batch_server(lambda body: (200, gullible_reply(body))) as served:
        served.polls = 2
        yield served


@pytest.fixture
def batch_source(tmp_path: Path) -> Path:
    traces = [rag_trace(number, answer) for number, answer in enumerate(BATCHED)]
    return write_traces(tmp_path / "traces.jsonl", traces)


def batched(server: BatchServer, batch_source: Path, *more: str) -> tuple[str, ...]:
    progress = batch_source.with_name("progress.db")
    return (
        *("backfill", "--from", f"otlp-file:{batch_source}", "--to", server.url.removesuffix("/v1")),
        *("--progress", str(progress), "--judge", "openai:gpt-4o-mini", "--base-url", server.url),
        *("--batch", "--batch-poll", "0.05", "--yes", *more),
    )


def carrier_ids(exports: Iterable[bytes]) -> set[str]:
    return {span.span_id for export in exports for span in decode(export)}


def in_a_process(args: tuple[str, ...]) -> ForkServerProcess:
    process = _processes.Process(target=run_quietly, args=(args,), daemon=True)
    process.start()
    return process


def kill(process: ForkServerProcess) -> str:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    return "killed"


@pytest.mark.slow
def test_batches_judge_as_the_live_judge_does_at_half_its_price(
    server: BatchServer, batch_source: Path
) -> None:
    (told,) = json_lines(run(*batched(server, batch_source, "--json")).stdout)
    assert (told["judged"], told["labels"], told["sent"]) == (3, {"pass": 2, "fail": 1}, 3)
    assert server.routes == [*STEPS]
    assert server.sizes == [3, 3]
    live = batch_source.with_name("live.jsonl")
    with running_gullible_model() as url:
        judge = ("--judge", "openai:gpt-4o-mini", "--base-url", url, "--yes")
        run("backfill", "--from", f"otlp-file:{batch_source}", "--to", f"otlp-file:{live}", *judge)
    written = [encode(decode_json(line)) for line in live.read_text("utf-8").splitlines()]
    assert carrier_ids(written) == carrier_ids(server.exports)


@pytest.mark.slow
def test_killed_again_and_again_it_comes_to_its_end_and_pays_once(
    server: BatchServer, batch_source: Path
) -> None:
    alive: list[ForkServerProcess] = []
    struck: set[tuple[int, str]] = set()

    def strike(_number: int, route: str, now: str) -> str | None:
        place = (len(server.batches), route + now)
        if place in struck:
            return None
        struck.add(place)
        return kill(alive[-1])

    server.on_request = strike
    for _ in range(40):
        alive.append(in_a_process(batched(server, batch_source)))
        alive[-1].join(timeout=PATIENCE_S)
        if alive[-1].exitcode == 0:
            break
    assert alive[-1].exitcode == 0
    assert len(alive) > 20
    assert {*server.charged.values()} == {1}
    assert len(carrier_ids(server.exports)) == 3


@pytest.mark.slow
def test_ctrl_c_leaves_batches_to_go_on_and_says_how_to_take_their_replies(
    server: BatchServer, batch_source: Path
) -> None:
    server.polls = 0

    def interrupt(_number: int, route: str, _moment: str) -> None:
        if route == "retrieve" and server.routes.count("retrieve") == 2:
            os.kill(os.getpid(), signal.SIGINT)

    server.on_request = interrupt
    stopped = run(*batched(server, batch_source))
    assert stopped.exit_code == 130
    assert "left               3" in stopped.stdout
    assert "3 requests in a batch at the provider: the same command takes the replies" in stopped.stderr
    server.polls = 1
    (told,) = json_lines(run(*batched(server, batch_source, "--json")).stdout)
    assert told["judged"] == 3
    assert {*server.charged.values()} == {1}


@pytest.mark.slow
def test_a_limit_ends_a_run_whose_replies_the_next_one_takes(server: BatchServer, batch_source: Path) -> None:
    ended = run(*batched(server, batch_source, "--max-calls", "4"))
    assert (ended.exit_code, server.sizes) == (3, [3, 1])
    (told,) = json_lines(run(*batched(server, batch_source, "--json")).stdout)
    assert (told["judged"], told["already_evaluated"]) == (2, 1)
    assert server.sizes == [3, 1, 2]
    assert {*server.charged.values()} == {1}
