"""Whoever is asked sends us on to another host: nobody goes there, and it is said where it pointed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ragtrace
from ragtrace.capture import _guard as hints
from ragtrace.capture import statistics
from tests.attack.clients import CLIENTS, CONTENT, SECRET
from tests.attack.hostile_server import Hostile, Sent, hostile_server
from tests.integration.cli.program import run

pytestmark = pytest.mark.slow


@pytest.fixture
def elsewhere() -> Iterator[Hostile]:
    with hostile_server(Sent(body=b"{}")) as server:
        yield server


def location(elsewhere: Hostile) -> str:
    """The same machine by another name, with what no message may repeat."""
    return elsewhere.url.replace("//127.0.0.1", "//user:pass-word@localhost") + "/path?key=secret-query"


def pointing_to(elsewhere: Hostile) -> Sent:
    return Sent(status=307, headers={"location": location(elsewhere)})


def check_said(said: str) -> None:
    assert "localhost" in said
    assert "redirect" in said
    assert "307" in said
    assert "\n" not in said
    for secret in ("pass-word", "secret-query", SECRET, CONTENT):
        assert secret not in said


@pytest.mark.parametrize("name", CLIENTS)
async def test_no_client_follows_a_redirect_and_each_says_where_it_pointed(
    name: str, elsewhere: Hostile
) -> None:
    client = CLIENTS[name]
    with hostile_server(pointing_to(elsewhere)) as server, pytest.raises(client.error) as caught:
        await client.ask(server.url, 60)
    assert server.requests
    assert elsewhere.requests == []
    check_said(str(caught.value))


def test_the_doctor_follows_no_redirect_of_a_judge_or_back_end(
    elsewhere: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    with hostile_server(pointing_to(elsewhere)) as server:
        judge = ("--judge", "openai:m", "--base-url", f"{server.url}/v1", "--api-key-env", "MY_KEY")
        outcome = run("doctor", *judge, "--to", f"{server.url}/v1/traces", "--json")
    asked = {line.split()[1] for line, _, _ in server.requests}
    assert {"/v1/chat/completions", "/v1/traces"} <= asked
    assert outcome.exit_code == 1
    assert elsewhere.requests == []
    assert outcome.stdout.count("redirects to ") >= 2
    check_said(" ".join(outcome.stdout.split()))


def test_an_application_follows_no_redirect_counts_nothing_as_sent_and_says_where_it_pointed(
    elsewhere: Hostile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "_shown", {})
    with hostile_server(pointing_to(elsewhere)) as server:
        settings = {"protocol": "http/protobuf", "headers": {"x-key": SECRET}, "only": []}
        assert ragtrace.instrument(endpoint=server.url, **settings)
        with ragtrace.rag(question=CONTENT):
            pass
        taken, counts = ragtrace.flush(), statistics()
        ragtrace.uninstrument()
    assert len(server.requests) >= 1
    assert elsewhere.requests == []
    assert (taken, counts.spans_exported, counts.spans_failed) == (False, 0, 1)
    (line,) = capsys.readouterr().err.splitlines()
    check_said(line)
