from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ragtrace.errors import InputError
from ragtrace.model import Chunk, Part, RagRecord
from ragtrace.records import read_records


def read(tmp_path: Path, *lines: Any) -> list[RagRecord]:
    path = tmp_path / "records.jsonl"
    texts = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    path.write_bytes(b"\n".join(texts))
    return list(read_records(path))


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q", "contexts": ["c"], "answer": "a", "reference": "r"},
        {"user_input": "q", "retrieved_contexts": ["c"], "response": "a", "reference": "r", "rubrics": {}},
        {"input": "q", "retrieval_context": ["c"], "actual_output": "a", "expected_output": "r"},
        {"query": "q", "context": "c", "output": "a", "reference": "r"},
    ],
    ids=["ours", "ragas", "deepeval", "promptfoo"],
)
def test_all_spellings_give_the_same_record(row: dict[str, Any], tmp_path: Path) -> None:
    [record] = read(tmp_path, row)
    assert (record.id, record.question, record.answer, record.reference) == ("line-1", "q", "a", "r")
    assert record.chunks == (Chunk(id="2e7d2c03a9507ae2", text="c"),)


def test_a_context_may_bring_its_id_score_and_metadata(tmp_path: Path) -> None:
    context = {"id": 7, "text": "t", "score": 0.5, "metadata": {"tags": ["x"], "page": {"n": 1}}}
    [record] = read(tmp_path, {"id": 3, "contexts": ["first", context]})
    chunk = record.chunks[1]
    assert (record.id, chunk.id, chunk.rank, chunk.score) == ("3", "7", 1, 0.5)
    assert chunk.metadata == {"tags": ("x",), "page": {"n": 1}}


def test_odd_text_is_read(tmp_path: Path) -> None:
    lines = [b'\xef\xbb\xbf{"answer": "a\\u0000b"}', b" ", b'{"answer": "x\\ud800y \\ud83d\\ude00"}\r', b""]
    assert [record.answer for record in read(tmp_path, *lines)] == ["a\0b", "x\ufffdy \U0001f600"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"answer": ', "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"answer": "\xff"}', "is not UTF-8"),
        (b"[" * 100_000, "is not JSON"),
        ({"answer": 3}, "field `answer`"),
        ({"response": 3}, "field `response`"),
        ({"contexts": 7}, "field `contexts`: must be a string, or a list of strings"),
        ({"contexts": ["SECRET"], "context": "b"}, "fields `contexts` and `context` both name"),
        ({"contexts": ["a", {"id": "x"}]}, "field `contexts.1.text`"),
        (b'{"contexts": [{"text": "a", "score": Infinity}]}', "field `contexts.0.score`"),
        ({"id": ""}, "field `id`"),
        ({"id": "one"}, "already used at line 1"),
        ({"id": "two", "message": "SECRET"}, "none of the fields `question`, `contexts`, `answer`"),
        ({"resourceSpans": []}, "ragtrace explain"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_line_is_named_with_its_field(line: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, {"id": "one"}, line)
    assert "records.jsonl, line 2" in str(caught.value)
    assert told in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_no_list_of_contexts_is_a_gap_and_an_empty_one_is_none(tmp_path: Path) -> None:
    absent, null, empty = read(tmp_path, {"answer": "a"}, {"contexts": None}, {"contexts": []})
    assert [[gap.part for gap in each.gaps] for each in (absent, null, empty)] == [[Part.CONTEXT]] * 2 + [[]]


def read_csv(tmp_path: Path, text: str | bytes) -> list[RagRecord]:
    path = tmp_path / "records.CSV"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(read_records(path))


def test_a_csv_file_has_lists_as_json_or_one_text(tmp_path: Path) -> None:
    long = "x" * 200_000  # longer than Python's own limit of a cell
    text = (
        "\ufeffuser_input,retrieved_contexts,response\r\n"
        '[1],"[""a, b"", {""id"": ""7"", ""text"": ""c""}]","two\nlines"\r\n'
        "\r\n"
        f"q,[1] Refunds take 14 days.,{long}\r\n"
        "q,[1],\r\n"
        "q,,a\r\n"
    )
    first, second, third, fourth = read_csv(tmp_path, text)
    assert (first.id, first.question, first.answer) == ("row-1", "[1]", "two\nlines")
    assert [(chunk.text, chunk.rank) for chunk in first.chunks] == [("a, b", 0), ("c", 1)]
    assert (second.id, second.chunks[0].text, second.answer) == ("row-2", "[1] Refunds take 14 days.", long)
    assert (third.chunks[0].text, third.answer) == ("[1]", None)
    assert [gap.part for gap in fourth.gaps] == [Part.CONTEXT]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("question,answer\nq,SECRET,b\n", "row 1: cells: 3, columns: 2"),
        ("question,answer\nq,a\nq\n", "row 2: cells: 1, columns: 2"),
        ("answer,contexts\na,['SECRET'\n", "row 1: field `contexts`: cannot be read, or leaves items out"),
        ("answer,answer\na,b\n", "two columns are named `answer`"),
        ('answer\n"SECRET\n', "is not CSV"),
        (b"answer\n\xff\n", "line 2: is not UTF-8"),
        ("message\nSECRET\n", "none of the fields"),
    ],
)
def test_a_bad_csv_row_is_named(text: str | bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_csv(tmp_path, text)
    assert told in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    rows = [
        {"input": "q", "retrieval_context": ["a", "b"], "actual_output": "x"},
        {"input": None, "retrieval_context": None, "actual_output": "y"},
    ]
    path = tmp_path / "records.parquet"
    parquet.write_table(pa.Table.from_pylist(rows * 200), path)
    records = list(read_records(path))
    assert [len(records), records[-1].id] == [400, "row-400"]
    assert [chunk.text for chunk in records[0].chunks] == ["a", "b"]
    assert (records[1].question, records[1].answer, len(records[1].gaps)) == (None, "y", 1)
