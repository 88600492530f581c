"""``ragtrace backfill`` of sources that are wrong, broken or ill: told clearly, and the rest is judged."""

from __future__ import annotations

import gzip
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ragtrace.cli import INTERRUPTED
from ragtrace.traces.otlp import decode_json, encode_json
from ragtrace.traces.trace import Span
from tests.integration.cli.faulty_servers import DOWN, FaultyServer, faulty_tempo
from tests.integration.cli.program import json_lines, run, start
from tests.patience import PATIENCE_S
from tests.rag_spans import START_NS, rag_trace, trace_id_of
from tests.unit.backends.servers import HttpAnswer

pytestmark = pytest.mark.slow  # a judge's or a back end's server

ANSWERS = 8
SINCE, UNTIL = "2025-10-09T08:53:20Z", "2025-10-09T08:53:40Z"  # START_NS, and twenty seconds later
STORED = [rag_trace(number, start_ns=START_NS + number * 10**9) for number in range(ANSWERS)]
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


def test_an_unknown_service_is_told_with_those_that_are_known(search: Any) -> None:
    kind = "tempo"
    serve = faulty_tempo
    with serve([]) as server:
        server.stored = STORED
        server.fault = lambda path: HttpAnswer(body=b"{}") if "/api/search?" in path else None
        outcome = search(server, "--service", "shpo", kind=kind)
    assert (outcome.code, outcome.report["traces"]) == (0, 0)
    assert "there is no service 'shpo', but shop" in outcome.said


def test_no_traces_are_told_with_the_time_that_was_searched(search: Any) -> None:
    with faulty_tempo([]) as server:
        outcome = search(server)
    assert (outcome.code, outcome.report["traces"]) == (0, 0)
    assert "no trace was found from 2025-10-09 08:53 UTC to 2025-10-09 08:53 UTC" in outcome.said


def test_a_window_that_the_server_cuts_is_told_and_the_rest_is_judged(search: Any, tmp_path: Path) -> None:
    crowd = [rag_trace(0x100 + number, start_ns=START_NS + 10**10) for number in range(500)]
    with faulty_tempo([*STORED, *crowd]) as server:
        outcome = search(server, "--rate", "0.02")
    assert (outcome.code, outcome.report["cut_windows"]) == (1, 1)
    assert outcome.report["traces"] == ANSWERS + len(crowd)


def test_a_trace_deleted_between_search_and_reading_is_told(search: Any, tmp_path: Path) -> None:
    with faulty_tempo(STORED) as server:
        server.fault = lambda path: HttpAnswer(status=404) if IDS[3] in path else None
        outcome = search(server)
    assert (outcome.code, outcome.report["judged"]) == (1, ANSWERS - 1)
    assert outcome.report["not_found"] == [IDS[3]]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (HttpAnswer(status=401), "refused the credentials (401): give a token"),
        (HttpAnswer(body=b"\n <!doctype html><title>Sign in</title>"), "answered 200 with a web page"),
        (
            HttpAnswer(status=302, headers={"location": "https://login/?next=x"}),
            "redirects to login, which is not followed: is this the",
        ),
        (HttpAnswer(status=502, body=b"<html>"), "answered 502 with a web page"),
        (HttpAnswer(body=b"hello"), "is not JSON"),
        (HttpAnswer(status=404), "is this"),
    ],
    ids=["401", "login page", "redirect", "proxy", "no JSON", "elsewhere"],
)
def test_a_wrong_address_or_login_is_told_and_nothing_is_judged(
    search: Any, answer: HttpAnswer, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "tempo"
    serve = faulty_tempo
    monkeypatch.setenv("TOKEN_OF_MINE", "t-secret")
    answer.headers.setdefault("retry-after", "0")
    with serve(STORED) as server:
        server.fault = lambda _: answer
        outcome = search(server, "--from-header", "Authorization=Bearer ${env:TOKEN_OF_MINE}", kind=kind)
    assert (outcome.code, outcome.report) == (1, {})
    assert told in outcome.said
    assert "t-secret" not in outcome.said


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


def test_who_stops_a_run_does_not_wait_for_a_server_that_is_down(tmp_path: Path) -> None:
    asked = threading.Event()
    with faulty_tempo(STORED) as server:

        def fault(path: str) -> HttpAnswer | None:
            if len(server.paths) > 6:
                asked.set()
            return HttpAnswer(status=503) if len(server.paths) > 4 else None

        server.fault = fault
        to = ("--to", f"otlp-file:{tmp_path / 'out.jsonl'}", "--since", SINCE, "--until", UNTIL)
        process = start("backfill", "--from", f"tempo:{server.url}", *to, "--judge", "lexical", "--json")
        assert asked.wait(timeout=PATIENCE_S)
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=PATIENCE_S)
    (report,) = json_lines(output.decode())
    assert (process.returncode, report["is_stopped"], report["sent"]) == (INTERRUPTED, True, 3)
    assert "stopped; the same command with --resume continues from here" in said.decode()


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
