"""``ragtrace backfill --batch``, killed at every step on its way."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from collections.abc import Iterable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

import pytest

from ragtrace.traces.otlp import decode, decode_json, encode
from tests.batch_server import BatchServer, running_batch_server
from tests.gullible_model import gullible_reply, running_gullible_model
from tests.integration.cli.program import json_lines, run, run_quietly
from tests.patience import PATIENCE_S
from tests.unit.backfill.stored_traces import RIGHT, WRONG, rag_trace, write_traces

pytestmark = pytest.mark.slow  # a judge's or a back end's server

ANSWERS: Final = (RIGHT, WRONG, "Refunds take 5 working days.")
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
def source(tmp_path: Path) -> Path:
    traces = [rag_trace(number, answer) for number, answer in enumerate(ANSWERS)]
    return write_traces(tmp_path / "traces.jsonl", traces)


def batched(server: BatchServer, source: Path, *more: str) -> tuple[str, ...]:
    progress = source.with_name("progress.db")
    return (
        *("backfill", "--from", f"otlp-file:{source}", "--to", server.url.removesuffix("/v1")),
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


def test_batches_judge_as_the_live_judge_does_at_half_its_price(server: BatchServer, source: Path) -> None:
    (told,) = json_lines(run(*batched(server, source, "--json")).stdout)
    assert (told["judged"], told["labels"], told["sent"]) == (3, {"pass": 2, "fail": 1}, 3)
    assert server.routes == [*STEPS]
    assert server.sizes == [3, 3]
    live = source.with_name("live.jsonl")
    with running_gullible_model() as url:
        judge = ("--judge", "openai:gpt-4o-mini", "--base-url", url, "--yes")
        run("backfill", "--from", f"otlp-file:{source}", "--to", f"otlp-file:{live}", *judge)
    written = [encode(decode_json(line)) for line in live.read_text("utf-8").splitlines()]
    assert carrier_ids(written) == carrier_ids(server.exports)


def test_killed_again_and_again_it_comes_to_its_end_and_pays_once(server: BatchServer, source: Path) -> None:
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
        alive.append(in_a_process(batched(server, source)))
        alive[-1].join(timeout=PATIENCE_S)
        if alive[-1].exitcode == 0:
            break
    assert alive[-1].exitcode == 0
    assert len(alive) > 20
    assert {*server.charged.values()} == {1}
    assert len(carrier_ids(server.exports)) == 3


def test_ctrl_c_leaves_batches_to_go_on_and_says_how_to_take_their_replies(
    server: BatchServer, source: Path
) -> None:
    server.polls = 0

    def interrupt(_number: int, route: str, _moment: str) -> None:
        if route == "retrieve" and server.routes.count("retrieve") == 2:
            os.kill(os.getpid(), signal.SIGINT)

    server.on_request = interrupt
    stopped = run(*batched(server, source))
    assert stopped.exit_code == 130
    assert "left               3" in stopped.stdout
    assert "3 requests in a batch at the provider: the same command takes the replies" in stopped.stderr
    server.polls = 1
    (told,) = json_lines(run(*batched(server, source, "--json")).stdout)
    assert told["judged"] == 3
    assert {*server.charged.values()} == {1}


def test_an_answer_the_judge_failed_on_is_asked_anew_by_the_next_run(
    server: BatchServer, source: Path
) -> None:
    healthy, server.model = server.model, lambda _body: (403, {"error": {"code": "forbidden"}})
    (failed,) = json_lines(run(*batched(server, source, "--json")).stdout)
    server.model = healthy
    (told,) = json_lines(run(*batched(server, source, "--json")).stdout)
    assert (failed["failed"], told["judged"]) == ({"judge_refused": 3}, 3)


def test_a_limit_ends_a_run_whose_replies_the_next_one_takes(server: BatchServer, source: Path) -> None:
    ended = run(*batched(server, source, "--max-calls", "4"))
    assert (ended.exit_code, server.sizes) == (3, [3, 1])
    (told,) = json_lines(run(*batched(server, source, "--json")).stdout)
    assert (told["judged"], told["already_evaluated"]) == (2, 1)
    assert server.sizes == [3, 1, 2]
    assert {*server.charged.values()} == {1}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--batch", "--judge", "lexical"), "only `openai:MODEL` can"),
        (
            ("--batch", "--judge", "openai:m", "--set", "judge.second=lexical"),
            "judge.second must be openai:MODEL",
        ),
        (("--concurrency", "300"), "at most 256 without --batch"),
    ],
    ids=["lexical", "second judge", "too many live"],
)
def test_what_cannot_be_is_said_at_once(source: Path, args: tuple[str, ...], told: str) -> None:
    refused = run("backfill", "--from", f"otlp-file:{source}", "--to", "otlp-file:out.jsonl", *args)
    assert refused.exit_code != 0
    assert told in re.sub(r"\s+", " ", refused.output)


def test_a_dry_run_reckons_with_the_price_of_batches(server: BatchServer, source: Path) -> None:
    told = run(*batched(server, source, "--dry-run", "--json"))
    assert json.loads(told.stdout)["judged"] == 3
    assert "upload" not in server.routes
