"""What commands and pages say of a cluster over a real Kafka: the same as of one store."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ragtrace.budget import Reservation, Spend
from ragtrace.clock import SystemClock
from ragtrace.sampling import position_of
from ragtrace.traces.otlp import encode
from ragtrace_collector.cli.shared_budget import read_shared_budget
from ragtrace_collector.config import load_config
from ragtrace_collector.store.open_reading import open_spend_ledger
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.kafka_server import Kafka
from tests.backends.process import eventually, free_ports
from tests.cluster.members import Member, cluster_config, create_topics
from tests.integration.cli.program import json_lines, run, start
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

SENT = 40
SHARDS = 4
RATIO = 0.7
CHOSEN = [number for number in range(SENT) if position_of(trace_id_of(number)) < RATIO]
LEFT_OUT = next(number for number in range(SENT) if number not in CHOSEN)
UNKNOWN = "f" * 32
DAY = {"day": {"calls": 1000}}
CLUSTER, ONE = "out.jsonl", "one.jsonl"
"""Names of the files that get the verdicts: of one length, for texts that are wrapped."""
TOLD: Mapping[str, Sequence[str]] = {
    "ledger": ("ledger",),
    "ledger by reason": ("ledger", "--by", "reason", "--since", "1h"),
    "why a judged answer": ("why", trace_id_of(CHOSEN[0])),
    "why a prefix": ("why", trace_id_of(CHOSEN[-1])[:31]),
    "why a trace that sampling leaves out": ("why", trace_id_of(LEFT_OUT)),
    "why an unknown trace": ("why", UNKNOWN),
    "budget": ("budget",),
    "tail": ("tail", "--no-follow", "-n", "100"),
    "tail with claims": ("tail", "--no-follow", "-n", "100", "--label", "fail", "--claims"),
    "report": ("report",),
    "outbox": ("outbox",),
    "explain": ("explain", trace_id_of(CHOSEN[0])),
    "drift": ("drift", "status"),
    "alerts": ("alerts", "list"),
}
"""Commands that read; all take ``--config``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command said, without what differs between two runs over the same answers."""

    exit_code: int
    lines: Sequence[str]


def said(config: Path, command: Sequence[str]) -> Said:
    result = run(*command, "--config", str(config))
    # times, sizes, addresses and places of files, which are each run's own
    text = re.sub(r"\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d)?|\d+(\.\d+)? (s|ms|min) ago|now", "TIME", result.output)
    text = text.replace(ONE, CLUSTER)
    of_its_own = "store:|kafka:|((TIME|UTC|to) ?)+$"  # where the heading breaks depends on the place
    lines = [line for line in text.splitlines() if not re.match(of_its_own, line)]
    is_list = command[0] == "tail"  # in the order of judging
    return Said(exit_code=result.exit_code, lines=sorted(lines) if is_list else lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read of the same answers in three ways, and where they still are."""

    one_store: Mapping[str, Said]
    while_running: Mapping[str, Said]
    after_stop: Mapping[str, Said]
    config: Path
    """Of the cluster, whose processes are stopped."""
    followed: Mapping[str, Any]
    """What programs that go on saw while the processes ran."""


def answer(number: int, start_ns: int) -> bytes:
    days = 14 if number % 3 else 90
    return encode(rag_trace(number, answer=f"Refunds take {days} days.", start_ns=start_ns))


def everything(config: Path) -> Mapping[str, Said]:
    return {name: said(config, command) for name, command in TOLD.items()}


def await_judged(*configs: Path, count: int) -> None:
    """Wait until the ledger has so many answers, and all of them are judged."""

    def is_so() -> bool:
        found = [json.loads(run("ledger", "--json", "--config", str(each)).stdout) for each in configs]
        return all((each["ended"], each["pending"], each["open_traces"]) == (count, 0, 0) for each in found)

    eventually(is_so, what=f"{count} judged answers")


def sections(out: Path) -> dict[str, Any]:
    return {
        "sample": {"ratio": RATIO},
        "budget": {"live": DAY, "backfill": DAY},
        "export": [{"endpoint": f"otlp-file:{out}"}],
    }


def config_in(folder: Path) -> Path:
    return folder / "collector.yaml"


@pytest.fixture(scope="module")
def readings(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Readings:
    """Judge the same answers in two processes over four shards, and in one over a file."""
    folder, prefix, start_ns = tmp_path_factory.mktemp("reading"), "reading", time.time_ns()
    create_topics(kafka, prefix=prefix, partitions=SHARDS)
    shared = cluster_config(
        kafka.broker, prefix=prefix, **sections(folder / CLUSTER), ui={"listen": "127.0.0.1:0"}
    )
    members = [
        Member(name=name, role="all", folder=folder / name, config=shared) for name in ("first", "second")
    ]
    one = {**shared, **sections(folder / ONE), "store": {"path": str(folder / "one/store.db")}}
    (folder / "one").mkdir()
    with ExitStack() as stack:
        alone = stack.enter_context(collector_process(folder / "one", one))
        for member in members:
            stack.callback(member.stop)
            member.start()
        await_owned(members)
        for number in range(SENT):
            body = answer(number, start_ns)
            assert members[number % 2].send(body)
            assert post(alone, body)
        config = config_in(members[0].folder)
        await_judged(config, config_in(folder / "one"), count=len(CHOSEN))
        while_running = everything(config)
        one_store = everything(config_in(folder / "one"))
        followed = follow(config, members, start_ns)
    return Readings(
        one_store=one_store,
        while_running=while_running,
        after_stop=everything(config_in(members[1].folder)),
        config=config,
        followed=followed,
    )


def await_owned(members: Sequence[Member]) -> None:
    """Wait until both processes have shards, and together all."""

    def is_so() -> bool:
        owned = [member.page("/status")["kafka"]["partitions"] for member in members]
        return sum(owned) == SHARDS and min(owned) > 0

    eventually(is_so, what="all shards to be given out")


def post(collector: CollectorProcess, body: bytes) -> bool:
    headers = {"content-type": "application/x-protobuf"}
    url = f"http://127.0.0.1:{collector.http_port}/v1/traces"
    return httpx.post(url, content=body, headers=headers, timeout=PATIENCE_S).is_success


def follow(config: Path, members: Sequence[Member], start_ns: int) -> Mapping[str, Any]:
    """Look at the pages of a process and at two programs that go on, before and after an answer comes."""
    late = next(number for number in range(SENT, 2 * SENT) if position_of(trace_id_of(number)) < RATIO)
    key = f"{trace_id_of(CHOSEN[0])}/00000000000000a1"
    with page(config) as client, tailing(config) as tail:
        running = members[1].running
        assert running is not None
        own = httpx.Client(base_url=f"http://127.0.0.1:{running.ui_port}", timeout=PATIENCE_S)
        eventually(lambda: len(rows(own)) >= len(CHOSEN), what="the copies of a process")
        found = {
            "rows": rows(client),
            "rows in a process": rows(own),
            "opened": client.get(f"/answers/{key}").text,
            "opened in a process": own.get(f"/answers/{key}").text,
        }
        seen = [json.loads(tail()) for _ in range(len(CHOSEN))]
        assert members[0].send(answer(late, start_ns))
        seen.append(json.loads(tail()))
        eventually(lambda: trace_id_of(late) in ids(rows(client)), what="a later answer on the page")
        eventually(lambda: trace_id_of(late) in ids(rows(own)), what="a later answer on a process's page")
        own.close()
    return {**found, "tail": [each["trace_id"] for each in seen], "late": trace_id_of(late)}


@contextmanager
def page(config: Path) -> Iterator[httpx.Client]:
    with (
        running_command("ui", "--no-open", "--listen", "127.0.0.1:0", "--json", config=config) as line,
        httpx.Client(base_url=json.loads(line())["url"], timeout=PATIENCE_S, trust_env=False) as client,
    ):
        yield client


@contextmanager
def tailing(config: Path) -> Iterator[Callable[[], str]]:
    with running_command("tail", "--json", "-n", "100", config=config) as line:
        yield line


@contextmanager
def running_command(*command: str, config: Path) -> Iterator[Callable[[], str]]:
    """Run a program that goes on; yield what returns its next line."""
    process = start(*command, "--config", str(config))
    try:
        assert process.stdout is not None
        reads = process.stdout
        yield lambda: reads.readline().decode()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert b"Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


def rows(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get("/answers.jsonl")
    return json_lines(answer.text) if answer.is_success else []


def ids(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(row["trace_id"] for row in found)


@pytest.mark.parametrize("name", TOLD)
def test_a_command_says_of_a_running_cluster_what_it_says_of_one_store(readings: Readings, name: str) -> None:
    assert readings.while_running[name] == readings.one_store[name]


@pytest.mark.parametrize("name", [name for name in TOLD if name.startswith("why") and "prefix" not in name])
def test_why_says_of_a_stopped_cluster_what_it_says_of_one_store(readings: Readings, name: str) -> None:
    assert readings.after_stop[name] == readings.one_store[name]


def test_a_stopped_cluster_is_read_from_another_folder(readings: Readings) -> None:
    one_more = len(CHOSEN) + 1
    assert readings.after_stop["ledger"].lines[0] == f"{one_more} answers seen = {one_more} ended + 0 pending"
    assert readings.after_stop["budget"] == readings.one_store["budget"]
    assert readings.after_stop["outbox"] == readings.one_store["outbox"]


def test_what_was_judged_is_told_by_more_than_its_absence(readings: Readings) -> None:
    told = readings.one_store
    assert told["ledger"].lines[0] == f"{len(CHOSEN)} answers seen = {len(CHOSEN)} ended + 0 pending"
    assert (
        told["why an unknown trace"].exit_code == told["why a trace that sampling leaves out"].exit_code == 1
    )
    assert len([line for line in told["tail"].lines if "0000000000" in line]) == len(CHOSEN)
    assert any("Refunds take 90 days." in line for line in told["tail with claims"].lines)


def test_no_line_is_wider_than_the_terminal(readings: Readings) -> None:
    for name in ("ledger", "ledger by reason", "tail", "report", "why an unknown trace"):
        assert max(map(len, readings.while_running[name].lines)) <= 80, name


def test_pages_show_the_answers_of_all_shards(readings: Readings) -> None:
    expected = sorted(map(trace_id_of, CHOSEN))
    assert ids(readings.followed["rows"]) == ids(readings.followed["rows in a process"]) == expected
    for opened in (readings.followed["opened"], readings.followed["opened in a process"]):
        assert "How long do refunds take?" in opened


def test_what_goes_on_sees_answers_that_come(readings: Readings) -> None:
    *before, last = readings.followed["tail"]
    assert sorted(before) == sorted(map(trace_id_of, CHOSEN))
    assert last == readings.followed["late"]


def test_the_copies_are_private(readings: Readings) -> None:
    folder = load_config(readings.config).store.folder / "readers"
    files = list(folder.iterdir())
    assert {file.name for file in files} >= {f"shard-{number}.db" for number in range(SHARDS)}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_what_others_spend_of_the_budget_for_back_fill_is_shown(readings: Readings) -> None:
    async def spend() -> int:
        config = load_config(readings.config)
        budget = read_shared_budget(readings.config).budget
        async with open_spend_ledger(config.store) as ledger:
            reserved = await ledger.reserve(budget, Spend(calls=3), now_ns=SystemClock().now_ns())
            assert isinstance(reserved, Reservation)
        async with read_shared_budget(readings.config).opened(asyncio.Event()) as opened:
            assert opened.spender is not None
            return opened.waiting_for

    assert asyncio.run(spend()) == 0
    shown = json.loads(run("budget", "--json", "--config", str(readings.config)).stdout)["limits"]
    assert [each["spent"] for each in shown if each["purse"] == "backfill"] == [3]


def test_doctor_and_check_say_that_the_cluster_is_fine(readings: Readings) -> None:
    config = str(readings.config)
    found = json_lines(run("doctor", "--json", "--config", config).stdout)
    (store,) = [check for check in found if check["name"].startswith("store ")]
    assert (store["status"], store["found"]) == ("ok", "4 shards")
    checked = run("collector", "--check", "--config", config)
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (("outbox", "--retry"), "`ragtrace backfill` judges the answers again"),
        (("backup", "copy.db"), "the copies of its topics are the backup"),
        (("drift", "run"), "look with `ragtrace drift status`"),
        (("drift", "accept"), "the next run is a new baseline"),
    ],
)
def test_what_only_the_owner_may_do_is_refused_with_advice(
    readings: Readings, command: Sequence[str], advice: str
) -> None:
    result = run(*command, "--config", str(readings.config))
    assert result.exit_code == 2
    assert advice in result.stderr


def changed(config: Path, folder: Path, **kafka: Any) -> Path:
    """Return a configuration of another cluster."""
    read = json.loads(config.read_text())
    read["store"] = {"kafka": {**read["store"]["kafka"], **kafka}, "path": str(folder / "shards")}
    file = folder / "changed.yaml"
    file.write_text(json.dumps(read))
    return file


READING = [
    command for name, command in TOLD.items() if name in ("ledger", "budget", "tail", "report", "explain")
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_cluster_of_another_prefix_is_not_there(
    readings: Readings, tmp_path: Path, command: Sequence[str]
) -> None:
    result = run(*command, "--config", str(changed(readings.config, tmp_path, prefix="other")))
    assert result.exit_code == 1
    assert re.search(r"topic 'other\.(state|budget)'", result.stderr), result.stderr
    assert "ragtrace kafka topics --apply" in result.stderr


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_brokers_that_are_away_are_named(tmp_path: Path, readings: Readings, command: Sequence[str]) -> None:
    (port,) = free_ports(1)
    result = run(*command, "--config", str(changed(readings.config, tmp_path, brokers=f"127.0.0.1:{port}")))
    assert result.exit_code == 1
    assert "Connection refused" in result.stderr, result.stderr
    assert f"127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.output


def test_the_pages_of_a_process_say_that_the_brokers_are_away(readings: Readings, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = json.loads(changed(readings.config, tmp_path, brokers=f"127.0.0.1:{port}").read_text())
    with collector_process(tmp_path, config) as collector:
        url = f"http://127.0.0.1:{collector.ui_port}/answers"

        def told() -> bool:
            shown = httpx.get(url, timeout=PATIENCE_S)
            return shown.status_code == 503 and "do not answer" in shown.text

        eventually(told, what="the reason on the page")


def test_a_folder_that_is_a_file_is_refused(readings: Readings, tmp_path: Path) -> None:
    config = changed(readings.config, tmp_path)
    (tmp_path / "shards").touch()
    for command in (("ledger",), ("collector", "--check")):
        result = run(*command, "--config", str(config))
        assert result.exit_code == 2
        assert "`store.path`" in result.stderr
        assert str(tmp_path / "shards") in result.stderr


def test_without_the_client_of_kafka_the_extra_is_named(readings: Readings, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "confluent_kafka.py").write_text(
        "raise ModuleNotFoundError('no module', name='confluent_kafka')\n"
    )
    for command in (("ledger",), ("budget",), ("collector", "--check"), ("collector",)):
        result = subprocess.run(
            [sys.executable, "-m", "ragtrace.cli", *command, "--config", str(readings.config)],
            env={**os.environ, "PYTHONPATH": str(hidden)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert result.returncode == 2, result.stderr
        assert "`store.kafka` needs the extra `kafka`: pip install" in result.stderr
