"""``ragtrace explain``."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragtrace.traces.otlp import encode, parse_request, split_by_trace
from ragtrace.traces.trace import Trace
from ragtrace_collector.store.cipher import open_cipher
from ragtrace_collector.store.sqlite import SCHEMA, SqliteFile
from ragtrace_collector.store.store import Store
from tests.integration.cli.program import json_lines, run
from tests.unit.backfill.stored_traces import CHUNK, RIGHT, plain_trace, rag_trace, trace_id, write_traces

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces.jsonl", [rag_trace(0), rag_trace(1, None), plain_trace(2)])


def test_each_part_is_shown_with_the_span_and_attribute_it_came_from(traces: Path) -> None:
    output = run("explain", str(traces), columns=200).stdout
    assert f"answer: {RIGHT}" in output
    assert "from span 'ask' (0000000000000001), ragtrace.answer [ragtrace]: " in output
    assert f"- faq-12: {CHUNK}" in output
    assert "from span 'retrieval faq' (0000000000000002), ragtrace.retrieval.documents [ragtrace]: " in output


def test_what_was_passed_over_is_named_with_the_rule(tmp_path: Path) -> None:
    recording = json.loads((RECORDINGS / "langfuse.langfuse-langchain.json").read_text())
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps(recording["trace"]))
    output = run("explain", str(traces), columns=200).stdout
    assert "not from 'ChatOpenAI': the answer of the RAG call itself comes first" in output
    (found,) = json_lines(run("explain", str(traces), "--json").stdout)
    passed_over = {(each["part"], each["span_name"]) for each in found["records"][0]["passed_over"]}
    assert ("answer", "ChatOpenAI") in passed_over


def test_gaps_and_traces_without_a_record_are_explained(traces: Path) -> None:
    output = run("explain", str(traces), columns=200).stdout
    assert "answer: missing" in output
    assert "gap, no_content: " in output
    assert "note: no span follows a convention that ragtrace reads" in output


def test_machines_get_a_line_a_trace(traces: Path) -> None:
    whole, damaged, plain = json_lines(run("explain", f"otlp-file:{traces}", "--json").stdout)
    assert whole["trace_id"] == trace_id(0)
    assert whole["records"][0]["answer"] == RIGHT
    assert {"answer", "context", "question"} == {each["part"] for each in whole["records"][0]["provenance"]}
    assert damaged["records"][0]["gaps"][0]["reason"] == "no_content"
    assert (plain["records"], len(plain["notes"])) == ([], 1)


def test_a_file_without_spans_is_told_from_one_that_has_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"question": "q", "answer": "a"}\n')
    result = run("explain", str(tmp_path / "records.jsonl"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no spans: " in result.stderr


def test_text_under_judgment_cannot_steer_the_terminal(tmp_path: Path) -> None:
    traces = write_traces(tmp_path / "traces.jsonl", [rag_trace(0, "Yes.\x1b[2J\x07\u202eevil")])
    output = run("explain", str(traces)).stdout
    assert "Yes." in output
    assert not set(output) & set("\x1b\x07\u202e")


KEY, NEWER_KEY, OTHER_KEY = (base64.b64encode(bytes([number]) * 32).decode() for number in range(3))
KEYS = "store.encryption_keys"


def config_file(path: Path, store: Path, *keys: str, **sections: Any) -> Path:
    settings: Mapping[str, Any] = {
        "export": [{"endpoint": f"otlp-file:{path.with_name('out.jsonl')}"}],
        "store": {"path": str(store), "encryption_keys": list(keys)},
        **sections,
    }
    path.write_text(json.dumps(settings))
    return path


def request(trace: Trace) -> bytes:
    return encode(trace.spans)


def write_store(path: Path, *keys: str, trace: Trace) -> None:
    asyncio.run(append(path, *keys, trace=trace))


async def append(path: Path, *keys: str, trace: Trace) -> None:
    store = await Store.open(SqliteFile(path), max_bytes=1 << 30, cipher=open_cipher(keys))
    slices = split_by_trace(parse_request(request(trace), encoding="protobuf")).slices
    await store.append(slices, forward={}, now_ns=1)
    await store.aclose()


def explained(*args: str, columns: int = 200) -> dict[str, Any]:
    result = run("explain", *args, "--json", columns=60)
    assert result.exit_code == 0, result.stderr
    (trace,) = json_lines(result.stdout)
    return trace


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.fixture
def encrypted(tmp_path: Path) -> Path:
    """An encrypted store that nobody has open."""
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / "ragtrace.db"
    write_store(path, KEY, trace=rag_trace(0))
    return path


@pytest.mark.parametrize("source", [[], ["--from", "store"], ["--from", "store:PATH"]])
def test_the_keys_are_those_of_the_configuration(encrypted: Path, tmp_path: Path, source: list[str]) -> None:
    config = config_file(tmp_path / "collector.json", encrypted, NEWER_KEY, KEY)
    named = [part.replace("PATH", str(encrypted)) for part in source]
    found = explained(trace_id(0), *named, "--config", str(config))
    assert found["records"][0]["answer"] == RIGHT


def test_without_keys_the_store_is_called_encrypted_and_not_damaged(encrypted: Path, tmp_path: Path) -> None:
    keyless = config_file(tmp_path / "collector.json", encrypted)
    for args in (["--from", f"store:{encrypted}"], ["--config", str(keyless)]):
        result = run("explain", trace_id(0), *args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "is encrypted" in result.stderr
        assert f"`{KEYS}`, and name the configuration with --config" in result.stderr
        assert "damaged" not in result.stderr


def test_a_wrong_key_is_called_so_and_not_shown(encrypted: Path, tmp_path: Path) -> None:
    config = config_file(tmp_path / "collector.json", encrypted, OTHER_KEY)
    result = run("explain", trace_id(0), "--config", str(config))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "which is not among those given: add that key to `store.encryption_keys`" in result.stderr
    assert "damaged" not in result.stderr
    assert KEY not in result.stderr
    assert OTHER_KEY not in result.stderr


def test_a_store_is_not_changed_by_looking_into_it(encrypted: Path, tmp_path: Path) -> None:
    before = contents(encrypted.parent)
    config = config_file(tmp_path / "collector.json", encrypted, *(KEY,))
    run("explain", trace_id(0), "--config", str(config))
    after = contents(encrypted.parent)
    assert {name: after[name] for name in before} == before
    assert not any(after[name] for name in after.keys() - before.keys() if name.endswith("-wal"))


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmark (url TEXT)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{SCHEMA} PRAGMA user_version = 99;")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        pytest.param(lambda path: None, "there is no store", id="missing"),
        pytest.param(other_program, "it holds the tables of another program", id="other"),
        pytest.param(newer, "was written by another ragtrace: it is of version 99", id="newer"),
    ],
)
def test_what_is_no_store_of_this_version_is_told_with_what_to_do(
    tmp_path: Path, made: Any, says: str
) -> None:
    path = tmp_path / "ragtrace.db"
    made(path)
    result = run("explain", trace_id(0), "--from", f"store:{path}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr


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
    "Jaeger's page, gzip": gzip.compress(json.dumps(JAEGER).encode()),
    "Jaeger's page, UTF-16": json.dumps(JAEGER).encode("utf-16"),
    "Jaeger's third API": json.dumps({"result": REQUEST}),
    "Tempo's API, ids in hex": json.dumps({"trace": {"batches": REQUEST["resourceSpans"]}}),
    "Tempo's API, old scopes": json.dumps(old_scopes()),
    "snake_case, ids in hex": json.dumps(hex_ids(REQUEST, snake=True), indent=1),
    "ids in base64": json.dumps({"resourceSpans": TEMPO["batches"]}),
    "requests in an array": json.dumps([REQUEST]),
    "console, an array": json.dumps(console_spans(), indent=2),
    "console, among a log": among_a_log(),
    "console, without breaks between": "".join(json.dumps(span, indent=4) for span in console_spans()),
    "Zipkin, formatted": json.dumps(zipkin(), indent=2),
    "Go's console": of_go(),
}


def test_explain_and_evaluate_read_each_form(tmp_path: Path) -> None:
    for form, content in FORMS.items():
        path = tmp_path / "traces.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        result = run("explain", str(path), "--json")
        assert (result.exit_code, result.stderr) == (0, ""), form
        [found] = json_lines(result.stdout)
        [record] = found["records"]
        assert (record["question"], record["answer"], record["gaps"]) == (Q, WRONG, []), form
        assert [chunk["text"] for chunk in record["contexts"]] == PASSAGES, form
        [verdict] = json_lines(run("evaluate", str(path), "--judge", "lexical", "--json").stdout)
        assert (verdict["id"], verdict["label"]) == (record["id"], "fail"), form


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
    ],
    ids=["console", "cut off"],
)
def test_a_broken_file_is_told_with_its_line(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_text(content)
    result = run("explain", str(path))
    assert result.exit_code == 2
    assert f"{path}, line 1: " in result.stderr
    assert said in result.stderr
    assert "SECRET" not in result.stderr
