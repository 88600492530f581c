"""``ragtrace backfill --to`` a back end that keeps scores in a form of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.integration.cli.program import json_lines, run
from tests.unit.backends.servers import HttpAnswer, http_server
from tests.unit.backfill.stored_traces import RIGHT, WRONG, rag_trace, write_traces


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("LANGFUSE_KEYS", "cGstbGYtMTpzay1sZi0y")
    source = write_traces(tmp_path / "traces.jsonl", [rag_trace(0, RIGHT), rag_trace(1, WRONG)])
    (tmp_path / "script.json").write_text("{}")
    asked = ("--judge", f"scripted:{tmp_path / 'script.json'}", "--json")
    return (
        "backfill",
        "--from",
        f"otlp-file:{source}",
        "--to-header",
        "Authorization=Basic ${env:LANGFUSE_KEYS}",
        *asked,
    )


def test_keys_are_tried_then_each_answer_gets_its_score_once(args: tuple[str, ...]) -> None:
    with http_server(lambda _: HttpAnswer(body=b'{"id":"1"}')) as server:
        to = ("--to", f"langfuse:{server.url}")
        (first,), (second,) = json_lines(run(*args, *to).stdout), json_lines(run(*args, *to).stdout)
    assert (first["sent"], second["sent"], second["already_evaluated"]) == (2, 0, 2)
    (tried, *sent), _ = server.requests[:3], server.requests[3]
    assert tried[0] == "/api/public/projects"
    assert [json.loads(body)["value"] for _, _, body in sent] == [1.0, 0.0]
    assert len({headers["authorization"] for _, headers, _ in server.requests}) == 1
    assert "cGstbGYtMTpz" not in json.dumps(first)


def test_wrong_keys_are_told_before_anything_is_judged(args: tuple[str, ...]) -> None:
    with http_server(lambda _: HttpAnswer(status=401)) as server:
        result = run(*args, "--to", f"langfuse:{server.url}")
    assert result.exit_code == 1
    assert "answered 401" in result.stderr
    assert len(server.requests) == 1


def test_a_log_store_is_tried_then_gets_the_records_of_each_answer(args: tuple[str, ...]) -> None:
    with http_server(lambda _: HttpAnswer()) as server:
        (told,) = json_lines(run(*args, "--to", f"logs:{server.url}/otlp").stdout)
    requests = [ExportLogsServiceRequest.FromString(body) for _, _, body in server.requests]
    assert {path for path, _, _ in server.requests} == {"/otlp/v1/logs"}
    records = [
        record
        for request in requests
        for of_resource in request.resource_logs
        for record in of_resource.scope_logs[0].log_records
    ]
    results = [record.severity_text for record in records if record.event_name == "gen_ai.evaluation.result"]
    assert (told["sent"], results) == (2, ["INFO", "WARN"])
