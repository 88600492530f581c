"""A database that a store cannot use, that is full or away; odd spans: told why, and nothing is lost."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import psycopg
import pytest

from ragtrace import semconv
from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.config import StoreConfig
from ragtrace_collector.store.open import open_store
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.postgres_server import Postgres, running_postgres
from tests.backends.process import eventually
from tests.integration.cli.program import run
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

SECRET = r"""p:a/s s@w?o#r%d&=[']"\é"""
"""Whatever an address gives a meaning to."""
BEFORE, ALL = 20, 30
"""Traces sent before the database goes, and in all."""
BOUND_S = 15
"""How long a sender waits at most for its answer."""


def opened(url: str) -> None:
    """Open a store there and close it, as a start of the collector does."""

    async def run() -> None:
        await (await open_store(StoreConfig().at(url), forward_to=())).aclose()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def refused(url: str) -> str:
    """Return the error of a start, which must hold no secret."""
    with pytest.raises(ConfigError) as caught:
        opened(url)
    assert SECRET not in str(caught.value)
    assert quote(SECRET, safe="") not in str(caught.value)
    return str(caught.value)


def dumped(url: str) -> str:
    """Return all that a database holds."""
    dump = subprocess.run(["pg_dump", url], capture_output=True, check=True, timeout=PATIENCE_S, text=True)
    return re.sub(r"^\\(un)?restrict .*$", "", dump.stdout, flags=re.MULTILINE)


UNUSABLE = {
    "read-only": (
        "ALTER DATABASE {db} SET default_transaction_read_only = on",
        "read-only transaction: name the server that takes writes",
    ),
    "another application": (
        "CREATE SCHEMA ragtrace CREATE TABLE users (name text)",
        "holds the tables of another program): give the collector another database",
    ),
    "another version": (
        "UPDATE ragtrace.store_version SET version = 99",
        "it is of version 99, and this one knows",
    ),
}


@pytest.mark.parametrize("why", UNUSABLE)
def test_a_database_that_holds_something_else_is_left_as_it_is(postgres: Postgres, why: str) -> None:
    damage, said = UNUSABLE[why]
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    if "ragtrace." in damage:
        opened(url)
    postgres.execute(damage.format(db=name), url)
    before = dumped(url)
    error = refused(url)
    assert error.startswith(f"`store.url`: postgresql://127.0.0.1:{postgres.port}/{name} cannot be used")
    assert said in error
    assert dumped(url) == before


def test_a_user_without_rights_is_told_which_are_missing(postgres: Postgres) -> None:
    url = postgres.new_database()
    user = f"{url.rpartition('/')[2]}_user"
    postgres.execute(f"CREATE ROLE {user} LOGIN")
    as_user = url.replace("ragtrace@", f"{user}@")
    advice = "let its user create the schema 'ragtrace' (GRANT CREATE ON DATABASE), or make it the owner"
    assert f"permission denied for database {url.rpartition('/')[2]}: {advice}" in refused(as_user)
    opened(url)
    for lacks, grant in (
        ("schema ragtrace", "USAGE ON SCHEMA ragtrace"),
        ("table store_version", "SELECT ON ALL TABLES IN SCHEMA ragtrace"),
        ("table writer", "USAGE ON SCHEMA ragtrace"),
    ):
        assert f"permission denied for {lacks}: {advice}" in refused(as_user)
        postgres.execute(f"GRANT {grant} TO {user}", url)


def test_a_password_may_have_any_character_and_is_never_shown(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.new_database()
    user, name = "hard", url.rpartition("/")[2]
    rules = postgres.folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("SELECT pg_reload_conf()")
        literal = psycopg.sql.Literal(SECRET)
        owner.execute(psycopg.sql.SQL("CREATE ROLE hard LOGIN PASSWORD {}").format(literal))
        owner.execute(
            psycopg.sql.SQL("GRANT CREATE ON DATABASE {} TO hard").format(psycopg.sql.Identifier(name))
        )
    place = f"127.0.0.1:{postgres.port}/{name}"
    address = f"postgresql://hard:{quote(SECRET, safe='')}@{place}"
    wrong = refused(f"postgresql://hard:{quote(SECRET, safe='')}x@{place}")
    assert 'password authentication failed for user "hard": see that' in wrong
    assert "%XX for special characters" in refused(f"postgresql://hard:{SECRET}@{place}")
    with collector_process(tmp_path, config(address)) as collector:
        file = str(tmp_path / "collector.yaml")
        told = [collector.page(path).text for path in ("/status", "/metrics", "/readyz", "/ledger")]
        told += [
            run(*words, "--config", file).output
            for words in (["doctor"], ["ledger"], ["collector", "--check"])
        ]
    for text in (*told, collector.log.read_text()):
        assert text
        assert SECRET not in text
        assert quote(SECRET, safe="") not in text


NOWHERE = {
    "postgresql://me:{secret}@127.0.0.1:1/db": r"postgresql://127\.0\.0\.1:1/db .*Connection refused",
    "postgresql://me:{secret}@unknown.invalid/db": "failed to resolve host 'unknown.invalid'",
    "postgresql://ragtrace:{secret}@127.0.0.1:{port}/nowhere": 'database "nowhere" does not exist',
    "postgresql://ragtrace:{secret}@127.0.0.1:{port}/postgres?sslmode=require": "SSL was required",
    "postgresql:///db?host=/nowhere&password={secret}": "/nowhere.*No such file or directory",
    "postgresql://me:{secret}@127.0.0.1:99999/db": 'invalid port number: "99999"',
    "postgresql://me:{secret}@127.0.0.1:{silent}/db": "connection timeout expired",
}


@pytest.mark.parametrize("address", NOWHERE)
def test_an_address_that_leads_nowhere_is_told_in_bounded_time(postgres: Postgres, address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ports = {"port": postgres.port, "silent": silent.getsockname()[1]}
        error = refused(address.format(secret=quote(SECRET, safe=""), **ports))
    assert re.search(NOWHERE[address], error), error
    assert error.endswith("that `store.url` has the right host, port, database, user, password and TLS")


def odd_traces() -> list[Sequence[Span]]:
    """Return traces with what an engine may not take: NUL, and numbers beyond 63 bits."""
    named = [replace(each, name=f"{each.name}\0x") for each in rag_trace(0)]
    texts = rag_trace(1, question="How\0 long?", answer="Refunds\0 take 14 days.", service="sh\0op")
    attributes = {"session.id": "a\0b", "k\0y": "z\0", "gen_ai.usage.input_tokens": 2**63 - 1}
    keyed = [replace(each, attributes={**each.attributes, **attributes}) for each in rag_trace(2)]
    late = [replace(each, start_ns=2**63 + 5, end_ns=2**63 + 10) for each in rag_trace(3)]
    latest = [replace(each, start_ns=2**64 - 2, end_ns=2**64 - 1) for each in rag_trace(4)]
    return [named, texts, keyed, late, latest]


def config(store: str) -> dict[str, object]:
    return {
        "receive": {"grpc": None, "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "200ms", "deadline": "5s"},
        "judge": {"use": "lexical"},
        "store": store,
        "telemetry": {"listen": "127.0.0.1:0"},
        "ui": {"listen": "127.0.0.1:0"},
    }


def judged(collector: CollectorProcess) -> int:
    accounts = collector.page("/ledger").json()["accounts"]
    return sum(account["number"] for account in accounts if account["state"] == "judged")


@pytest.mark.parametrize("engine", ["a file", "a server"])
def test_odd_names_texts_and_times_are_judged_on_both_engines(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path
) -> None:
    server: Postgres | None = request.getfixturevalue("postgres") if engine == "a server" else None
    traces = odd_traces()
    with collector_process(tmp_path, config(server.new_database() if server else "store.db")) as collector:
        assert [collector.send(*spans).status_code for spans in traces] == [200] * len(traces)
        eventually(lambda: judged(collector) == len(traces), what="verdicts")
        for spans in traces:
            assert collector.page(f"/why/{spans[0].trace_id}").status_code == 200
        shown = httpx.get(f"http://127.0.0.1:{collector.ui_port}/answers", follow_redirects=True)
        assert shown.status_code == 200


def test_a_full_database_puts_senders_off_and_goes_on_when_there_is_room(
    postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.new_database()
    full = "RAISE SQLSTATE '53100' USING MESSAGE = 'could not extend file: No space left on device'"
    with collector_process(tmp_path, config(url)) as collector:
        assert collector.send(*rag_trace(0)).status_code == 200
        eventually(lambda: judged(collector) == 1, what="a verdict")
        postgres.execute(
            f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {full}; END $$;"
            "CREATE TRIGGER full_disk BEFORE INSERT ON ragtrace.slice EXECUTE FUNCTION fail()",
            url,
        )
        answer = collector.send(*rag_trace(1))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert b"could not extend file: No space left on device: make room" in answer.content
        postgres.execute("DROP TRIGGER full_disk ON ragtrace.slice", url)
        assert collector.send(*rag_trace(1)).status_code == 200
        eventually(lambda: judged(collector) == 2, what="both verdicts")


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server of this test alone, which it stops."""
    with running_postgres() as running:
        yield running


@pytest.mark.slow
def test_senders_are_put_off_while_it_is_away_and_what_was_acknowledged_is_judged_once(
    server: Postgres, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    exporting = {**config(server.new_database()), "export": [{"endpoint": f"otlp-file:{out}"}]}
    with collector_process(tmp_path, exporting) as collector:
        for number in range(BEFORE):
            assert collector.send(*rag_trace(number)).status_code == 200
        server.stop(signal.SIGINT)
        put_off(collector, server)
        assert collector.page("/livez").status_code == 200
        server.start()
        for number in range(BEFORE, ALL):
            eventually(
                lambda number=number: collector.send(*rag_trace(number)).status_code == 200, what="a 200"
            )
        eventually(lambda: judged(collector) == ALL, what="verdicts")
        eventually(lambda: carriers(out) == Counter(map(trace_id_of, range(ALL))), what="each carrier once")
        assert collector.page("/readyz").status_code == 200
        assert collector.page("/ledger").json()["seen"] == ALL
        assert collector.stop() == 0
    assert "Traceback" not in collector.log.read_text()


def put_off(collector: CollectorProcess, server: Postgres) -> None:
    """Send a trace and look at the pages while the database is away."""
    began = time.monotonic()
    answer = collector.send(*rag_trace(BEFORE))
    assert time.monotonic() - began < BOUND_S
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    ready = collector.page("/readyz")
    assert ready.status_code == 503
    (reason,) = ready.json()["reasons"]
    assert reason.startswith(f"the store postgresql://127.0.0.1:{server.port}/")
    assert "see that the server runs" in reason


def carriers(out: Path) -> Counter[str]:
    lines = out.read_text("utf-8").splitlines() if out.exists() else ()
    score = f"{semconv.SCORE_PREFIX}faithfulness"
    return Counter(span.trace_id for line in lines for span in decode_json(line) if score in span.attributes)
