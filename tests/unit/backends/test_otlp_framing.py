"""Files of OTLP in every form that an OpenTelemetry Collector or a person leaves them in."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backends import OtlpFileReader
from ragtrace.errors import InputError
from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Trace
from tests.unit.traces.builders import a_span, a_trace

FIRST, SECOND = a_span(1), a_span(2, 1)


def json_lines() -> bytes:
    return b"".join(encode_json([span]).encode() + b"\n" for span in (FIRST, SECOND))


def laid_out() -> bytes:
    trees = [json.loads(encode_json([span])) for span in (FIRST, SECOND)]
    return "\n".join(json.dumps(tree, indent=2) for tree in trees).encode()


def as_list() -> bytes:
    return json.dumps([json.loads(encode_json([span])) for span in (FIRST, SECOND)], indent=1).encode()


def framed(pack: Callable[[bytes], bytes] = bytes, *, of: Callable[..., bytes] = encode) -> bytes:
    bodies = [pack(of([span])) for span in (FIRST, SECOND)]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def json_bytes(spans: list[object]) -> bytes:
    return encode_json(spans).encode()  # type: ignore[arg-type]


FORMS = {
    "lines of JSON": json_lines(),
    "JSON with a byte order mark": b"\xef\xbb\xbf" + json_lines(),
    "JSON over several lines": laid_out(),
    "a list": as_list(),
    "one protobuf message": encode([FIRST, SECOND]),
    "messages with lengths": framed(),
    "messages packed one by one": framed(zstd.compress),
    "JSON packed one by one": framed(zstd.compress, of=json_bytes),
    "gzip of JSON": gzip.compress(json_lines()),
    "gzip of messages": gzip.compress(framed()),
    "gzip in two parts": gzip.compress(encode_json([FIRST]).encode() + b"\n")
    + gzip.compress(encode_json([SECOND]).encode()),
    "zstd of JSON": zstd.compress(json_lines()),
}


async def read(path: Path, faults: list[str] | None = None) -> list[Trace]:
    on_fault = None if faults is None else lambda fault: faults.append(str(fault))
    return [trace async for trace in OtlpFileReader(path, on_fault=on_fault).traces()]


@pytest.mark.parametrize("form", FORMS)
async def test_trace_is_read_in_every_form(form: str, tmp_path: Path) -> None:
    (tmp_path / "traces").write_bytes(FORMS[form])
    assert await read(tmp_path / "traces") == [a_trace(FIRST, SECOND)]
    assert await OtlpFileReader(tmp_path / "traces").get(FIRST.trace_id) == a_trace(FIRST, SECOND)


async def test_spans_of_a_trace_in_several_files_of_a_folder_are_one_trace(tmp_path: Path) -> None:
    (tmp_path / "2026").mkdir()
    (tmp_path / "2026" / "traces-1.jsonl.gz").write_bytes(gzip.compress(encode_json([FIRST]).encode()))
    (tmp_path / "traces-2.bin").write_bytes(encode([SECOND]))
    (tmp_path / ".partial").write_bytes(b"nonsense")
    assert await read(tmp_path) == [a_trace(FIRST, SECOND)]


async def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json_lines())))
    assert await read(Path("-")) == [a_trace(FIRST, SECOND)]


@pytest.mark.parametrize("form", ["gzip of JSON", "messages with lengths", "zstd of JSON"])
async def test_file_that_is_cut_off_is_told_and_the_rest_is_read(form: str, tmp_path: Path) -> None:
    (tmp_path / "a-cut").write_bytes(FORMS[form][:-30])
    (tmp_path / "b-whole").write_bytes(json_lines())
    with pytest.raises(InputError, match="a-cut"):
        await read(tmp_path)
    faults: list[str] = []
    assert await read(tmp_path, faults) == [a_trace(FIRST, SECOND)]
    assert len(faults) == 1


async def test_bad_lines_are_told_and_the_others_read(tmp_path: Path) -> None:
    lines = [encode_json([FIRST]), '{"resourceSpans": 5}', '{"half', encode_json([SECOND])]
    (tmp_path / "traces.jsonl").write_text("\n".join(lines))
    faults: list[str] = []
    assert await read(tmp_path / "traces.jsonl", faults) == [a_trace(FIRST, SECOND)]
    assert [fault.partition(": ")[0].rpartition(", ")[2] for fault in faults] == ["line 2", "line 3"]


@given(st.binary(max_size=200))
async def test_no_file_breaks_the_reader(content: bytes) -> None:
    path = Path("-")
    faults: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert all(trace.spans for trace in await read(path, faults))
