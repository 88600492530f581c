"""``ragtrace backfill``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ragtrace.backfill import Progress
from ragtrace.traces.otlp import decode_json, encode
from tests.backends.otlp_receiver import OtlpReceiver
from tests.backends.process import free_ports
from tests.integration.cli.program import json_lines, run
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


def test_a_judge_that_fails_is_exit_code_1_and_the_failures_are_counted(source: str, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"error": "judge_refused"}')
    out = tmp_path / "out.jsonl"
    result = run(
        "backfill",
        "--from",
        source,
        "--to",
        f"otlp-file:{out}",
        "--judge",
        f"scripted:{tmp_path / 'broken.json'}",
        "--json",
    )
    (report,) = json_lines(result.stdout)
    assert (result.exit_code, report["failed"], report["sent"]) == (1, {"judge_refused": 2}, 1)


def test_a_trace_id_that_the_source_does_not_have_is_exit_code_1(source: str) -> None:
    result = run("backfill", "--from", source, "--dry-run", "--trace-id", trace_id(9))
    assert result.exit_code == 1
    assert trace_id(9) in result.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--since", "yesterday"), "write how long ago (2h, 7d) or a date"),
        (("--since", "1h", "--until", "2h"), "--since 1h is not before --until 2h"),
        (("--min-age", "99999999999d"), "write a duration of at most 3650d"),
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


def test_a_damaged_progress_file_is_told_with_what_to_do(source: str, scripted: str, tmp_path: Path) -> None:
    place = 0.4
    path = tmp_path / "progress.db"

    async def fill() -> None:
        for number in range(60):
            await progress.keep(f"{number:032x}", "1" * 16, bytes(2_000))
            await progress.sent(f"{number:032x}", "1" * 16)

    with Progress(path) as progress:
        asyncio.run(fill())
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(size * place) // 4096 * 4096)
        file.write(b"\xff" * 4096)
    result = run(
        "backfill", "--from", source, "--to", f"otlp-file:{tmp_path / 'out'}", "--judge", scripted,
        "--progress", str(path),
    )  # fmt: skip
    told = " ".join(result.stderr.split())
    assert result.exit_code == 2, told
    assert "the progress file" in told
    assert "it is damaged: move it away, or restore a copy" in told
    assert "Traceback" not in result.output
