"""Traces in files as people get them: from pages, APIs and console exporters."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.program import json_lines, run

FILES = Path(__file__).parents[2] / "data" / "traces"
Q = "How long do refunds take?"
PASSAGES = [
    "Refunds are paid within 14 days of the return.",
    "Returned goods must be unused and in their box.",
]
WRONG = "Refunds take 30 days."
TEMPO: dict[str, Any] = json.loads((FILES / "tempo-v1.json").read_text())
JAEGER: dict[str, Any] = json.loads((FILES / "jaeger-page.json").read_text())
CONSOLE = (FILES / "console.json").read_text()


def hex_ids(node: Any, *, snake: bool = False) -> Any:
    """Return OTLP's JSON with ids in hex, or all names in snake_case."""
    if isinstance(node, list):
        return [hex_ids(item, snake=snake) for item in node]
    if not isinstance(node, dict):
        return node
    found = {}
    for key, value in node.items():
        if key in ("traceId", "spanId", "parentSpanId") and not snake:
            value = base64.b64decode(value).hex()
        name = (
            "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key) if snake else key
        )
        found[name] = hex_ids(value, snake=snake)
    return found


REQUEST = hex_ids({"resourceSpans": TEMPO["batches"]})
SPANS: list[dict[str, Any]] = REQUEST["resourceSpans"][0]["scopeSpans"][0]["spans"]


def console_spans() -> list[Any]:
    decoder, text, spans = json.JSONDecoder(), CONSOLE.strip(), []
    while text:
        span, end = decoder.raw_decode(text)
        spans.append(span)
        text = text[end:].strip()
    return spans


def among_a_log() -> str:
    first, *others = (json.dumps(span, indent=4) for span in console_spans())
    lines = [
        "INFO:     Started server process [7]",
        first,
        "[2026-11-27 10:00:00] INFO {a} done",
        "{'event': 'x'}",
    ]
    return "\n".join([*lines, '{"level": "info"}', *others, "Bye {", ""])


def zipkin() -> list[Any]:
    return [
        {
            "traceId": span["traceId"],
            "id": span["spanId"],
            **({"parentId": span["parentSpanId"]} if "parentSpanId" in span else {}),
            "name": span["name"],
            "timestamp": int(span["startTimeUnixNano"]) // 1_000,
            "duration": (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) // 1_000,
            "localEndpoint": {"serviceName": "shop"},
            "tags": {pair["key"]: pair["value"]["stringValue"] for pair in span["attributes"]},
        }
        for span in SPANS
    ]


def of_go() -> str:
    spans = [
        {
            "Name": span["name"],
            "SpanContext": {"TraceID": span["traceId"], "SpanID": span["spanId"], "TraceFlags": "01"},
            "Parent": {"TraceID": "0" * 32, "SpanID": span.get("parentSpanId", "0" * 16)},
            "SpanKind": 1,
            "StartTime": "2026-09-21T16:13:20.000000001+02:00",
            "EndTime": "2026-09-21T16:13:25.5+02:00",
            "Attributes": [
                {"Key": pair["key"], "Value": {"Type": "STRING", "Value": pair["value"]["stringValue"]}}
                for pair in span["attributes"]
            ],
            "Events": None,
            "Status": {"Code": "Unset", "Description": ""},
            "Resource": [{"Key": "service.name", "Value": {"Type": "STRING", "Value": "shop"}}],
        }
        for span in SPANS
    ]
    return "\n".join(json.dumps(span, indent="\t") for span in spans)


def old_scopes() -> Any:
    [resource] = TEMPO["batches"]
    [scope] = resource["scopeSpans"]
    old = {"instrumentationLibrary": scope["scope"], "spans": scope["spans"]}
    return {"batches": [{"resource": resource["resource"], "instrumentationLibrarySpans": [old]}]}


FORMS: dict[str, str | bytes] = {
    **{path.stem: path.read_text() for path in sorted(FILES.iterdir())},
    "Jaeger's page, formatted": json.dumps(JAEGER, indent=2),
    "Jaeger's page, a line a trace": json.dumps(JAEGER) + "\n",
    "Jaeger's page, gzip": gzip.compress(json.dumps(JAEGER).encode()),
    "Jaeger's page, UTF-16": json.dumps(JAEGER).encode("utf-16"),
    "Jaeger's third API": json.dumps({"result": REQUEST}),
    "Tempo's API, formatted": json.dumps(TEMPO, indent=2),
    "Tempo's API, ids in hex": json.dumps({"trace": {"batches": REQUEST["resourceSpans"]}}),
    "Tempo's API, old scopes": json.dumps(old_scopes()),
    "snake_case": json.dumps(hex_ids({"resourceSpans": TEMPO["batches"]}, snake=True)),
    "snake_case, ids in hex": json.dumps(hex_ids(REQUEST, snake=True), indent=1),
    "ids in base64": json.dumps({"resourceSpans": TEMPO["batches"]}),
    "requests in an array": json.dumps([REQUEST]),
    "console, a line a span": "\n".join(map(json.dumps, console_spans())),
    "console, an array": json.dumps(console_spans(), indent=2),
    "console, among a log": among_a_log(),
    "console, among a log, a line a span": "start\n" + "\nlog line\n".join(map(json.dumps, console_spans())),
    "console, without breaks between": "".join(json.dumps(span, indent=4) for span in console_spans()),
    "Zipkin": json.dumps(zipkin()),
    "Zipkin, formatted": json.dumps(zipkin(), indent=2),
    "Go's console": of_go(),
}


@pytest.fixture(params=FORMS)
def traces(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    content = FORMS[request.param]
    path = tmp_path / "traces.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_explain_and_evaluate_read_each_form(traces: Path) -> None:
    result = run("explain", str(traces), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    [found] = json_lines(result.stdout)
    [record] = found["records"]
    assert (record["question"], record["answer"], record["gaps"]) == (Q, WRONG, [])
    assert [chunk["text"] for chunk in record["contexts"]] == PASSAGES
    [verdict] = json_lines(run("evaluate", str(traces), "--judge", "lexical", "--json").stdout)
    assert (verdict["id"], verdict["label"], verdict["score"]) == (record["id"], "fail", 0.0)


@pytest.mark.parametrize("name", [path.name for path in sorted(FILES.iterdir())])
def test_backfill_reads_each_download(name: str, tmp_path: Path) -> None:
    verdicts = tmp_path / "verdicts.jsonl"
    source, destination = f"otlp-file:{FILES / name}", f"otlp-file:{verdicts}"
    result = run("backfill", "--from", source, "--to", destination, "--judge", "lexical")
    assert result.exit_code == 0, result.stderr
    assert "evaluation fail" in verdicts.read_text()


def test_spans_without_valid_ids_are_told_and_the_others_read(tmp_path: Path) -> None:
    bad = [{**SPANS[0], "spanId": "abc"}, {**SPANS[0], "spanId": "xyz"}, {**SPANS[0], "traceId": 7}]
    tree = json.loads(json.dumps(REQUEST))
    tree["resourceSpans"][0]["scopeSpans"][0]["spans"] += bad
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(tree) + "\n")
    result = run("explain", str(path), "--json")
    assert [record["answer"] for found in json_lines(result.stdout) for record in found["records"]] == [WRONG]
    assert f"left out: {path}, line 1: 3 spans without a valid trace id and span id" in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            json.dumps({"context": {"trace_id": "SECRET", "span_id": "1"}}),
            "looks like the console exporter's",
        ),
        (json.dumps(JAEGER, indent=2)[:-40], "not OTLP JSON: "),
        ('{"data": ' + "[" * 200_000, "not OTLP JSON"),
    ],
    ids=["console", "cut off", "deep"],
)
def test_a_broken_file_is_told_with_its_line(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_text(content)
    result = run("explain", str(path))
    assert result.exit_code == 2
    assert f"{path}, line 1: " in result.stderr
    assert said in result.stderr
    assert "SECRET" not in result.stderr
