"""Files of OTLP: written and read, in every form that a Collector or a person leaves them in."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backends import OtlpFileReader, OtlpFileSink
from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Span, Trace
from tests.unit.traces.builders import TRACE_ID, a_span, a_trace

# ruff: noqa: ASYNC240 -- nothing else runs in these tests' event loops


OTHER_ID = "1" * 32
FIRST, SECOND, THIRD = (a_span(number) for number in (1, 2, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "traces.jsonl"


async def write(path: Path, *spans: Span) -> None:
    sink = OtlpFileSink(path)
    for span in spans:
        await sink.send(encode([span]))
    await sink.aclose()


async def read(path: Path) -> list[Trace]:
    return [trace async for trace in OtlpFileReader(path).traces()]


async def test_what_was_written_is_read_back_from_a_folder_that_was_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "traces.jsonl"
    await write(path, FIRST, SECOND)
    assert await read(path) == [a_trace(FIRST, SECOND)]


@pytest.mark.parametrize("length", [1, 5, 16, 200])
async def test_line_that_a_crash_cut_is_taken_back(path: Path, length: int) -> None:
    await write(path, FIRST)
    whole = path.read_bytes()
    path.write_bytes(whole + encode_json([SECOND]).encode()[:length])
    await write(path, THIRD)
    assert path.read_bytes() == whole + encode_json([THIRD]).encode() + b"\n"


async def test_spans_that_come_again_are_not_doubled(path: Path) -> None:
    await write(path, FIRST, SECOND, FIRST)
    await write(path, FIRST, SECOND)  # as after a crash
    await OtlpFileSink(path).send(encode([FIRST, SECOND, THIRD]))
    assert path.read_text().splitlines() == [encode_json([span]) for span in (FIRST, SECOND, THIRD)]


@pytest.mark.slow
async def test_large_file_is_not_held_in_memory(path: Path) -> None:
    text = "x" * 100_000  # in all far more than whatever else this process does meanwhile
    spans = [
        replace(a_span(9, attributes={"text": text}), trace_id=f"{number:032x}") for number in range(1, 301)
    ]
    path.write_text("".join(f"{encode_json([span])}\n" for span in spans))
    del spans
    tracemalloc.start()
    number = 0
    async for _ in OtlpFileReader(path).traces():
        number += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert number == 300
    assert peak < path.stat().st_size / 4


async def test_pipe_is_read_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = asyncio.create_task(asyncio.to_thread(pipe.write_text, encode_json([FIRST, SECOND])))
    assert await read(pipe) == [a_trace(FIRST, SECOND)]
    await writing


async def test_a_file_that_grew_or_was_written_again_is_looked_at_again(path: Path) -> None:
    other = replace(a_span(7), trace_id=OTHER_ID)
    path.write_text(f"{encode_json([FIRST])}\n")
    async with aclosing(OtlpFileReader(path)) as reader:
        assert await reader.get(TRACE_ID) == a_trace(FIRST)
        with path.open("a") as file:
            file.write(f"{encode_json([SECOND])}\n{encode_json([other])}")
        assert await reader.get(TRACE_ID) == a_trace(FIRST, SECOND)
        assert await reader.get(OTHER_ID) == Trace.of(OTHER_ID, [other])
        path.write_text(f"{encode_json([other])}\n")
        assert await reader.get(TRACE_ID) is None
        assert await reader.get(OTHER_ID) == Trace.of(OTHER_ID, [other])


ROOT, CHILD = a_span(1), a_span(2, 1)


def json_lines() -> bytes:
    return b"".join(encode_json([span]).encode() + b"\n" for span in (ROOT, CHILD))


def laid_out() -> bytes:
    trees = [json.loads(encode_json([span])) for span in (ROOT, CHILD)]
    return "\n".join(json.dumps(tree, indent=2) for tree in trees).encode()


def as_list() -> bytes:
    return json.dumps([json.loads(encode_json([span])) for span in (ROOT, CHILD)], indent=1).encode()


def framed(pack: Callable[[bytes], bytes] = bytes, *, of: Callable[..., bytes] = encode) -> bytes:
    bodies = [pack(of([span])) for span in (ROOT, CHILD)]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def json_bytes(spans: list[object]) -> bytes:
    return encode_json(spans).encode()  # type: ignore[arg-type]


FORMS = {
    "lines of JSON": json_lines(),
    "JSON with a byte order mark": b"\xef\xbb\xbf" + json_lines(),
    "JSON over several lines": laid_out(),
    "a list": as_list(),
    "one protobuf message": encode([ROOT, CHILD]),
    "messages with lengths": framed(),
    "messages packed one by one": framed(zstd.compress),
    "JSON packed one by one": framed(zstd.compress, of=json_bytes),
    "gzip of JSON": gzip.compress(json_lines()),
    "gzip of messages": gzip.compress(framed()),
    "gzip in two parts": gzip.compress(encode_json([ROOT]).encode() + b"\n")
    + gzip.compress(encode_json([CHILD]).encode()),
    "zstd of JSON": zstd.compress(json_lines()),
}


async def read_all(path: Path, faults: list[str] | None = None) -> list[Trace]:
    on_fault = None if faults is None else lambda fault: faults.append(str(fault))
    return [trace async for trace in OtlpFileReader(path, on_fault=on_fault).traces()]


@pytest.mark.parametrize("form", FORMS)
async def test_trace_is_read_in_every_form(form: str, tmp_path: Path) -> None:
    (tmp_path / "traces").write_bytes(FORMS[form])
    assert await read_all(tmp_path / "traces") == [a_trace(ROOT, CHILD)]
    assert await OtlpFileReader(tmp_path / "traces").get(ROOT.trace_id) == a_trace(ROOT, CHILD)


async def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json_lines())))
    assert await read_all(Path("-")) == [a_trace(ROOT, CHILD)]


async def test_bad_lines_are_told_and_the_others_read(tmp_path: Path) -> None:
    lines = [encode_json([ROOT]), '{"resourceSpans": 5}', '{"half', encode_json([CHILD])]
    (tmp_path / "traces.jsonl").write_text("\n".join(lines))
    faults: list[str] = []
    assert await read_all(tmp_path / "traces.jsonl", faults) == [a_trace(ROOT, CHILD)]
    assert [fault.partition(": ")[0].rpartition(", ")[2] for fault in faults] == ["line 2", "line 3"]


@given(st.binary(max_size=200))
async def test_no_file_breaks_the_reader(content: bytes) -> None:
    path = Path("-")
    faults: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert all(trace.spans for trace in await read_all(path, faults))
