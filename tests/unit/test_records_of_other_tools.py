"""Tables and files of records in the forms in which pandas, RAGAS, DeepEval and spreadsheets leave them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from backports import zstd

from ragtrace.errors import InputError
from ragtrace.model import RagRecord
from ragtrace.records import read_records

FILES = Path(__file__).parents[1] / "data" / "records"
Q = "How long do refunds take?"
FIRST = "Refunds are paid within 14 days of the return."
SECOND = "Returned goods must be unused."
ODD = 'It\'s "new": a\\b,\nnot {used} [at all] (yet).'
WRONG = "Refunds are paid within 30 days of the return."
FRAME = pd.DataFrame({"question": [Q], "contexts": [[FIRST, ODD]], "answer": [WRONG]})
TWO = pd.DataFrame({"question": [Q, Q], "contexts": [[FIRST], [SECOND]], "answer": [WRONG, FIRST]})


class Document:
    """Has the forms of LangChain's documents."""

    def __init__(self, text: str, **metadata: object) -> None:
        self.text, self.metadata = text, metadata

    def __repr__(self) -> str:
        return f"Document(metadata={self.metadata!r}, page_content={self.text!r})"

    def __str__(self) -> str:
        return f"page_content={self.text!r} metadata={self.metadata!r}"


class Node(NamedTuple):
    """Has the form of LlamaIndex's nodes."""

    text: str

    def __repr__(self) -> str:
        return (
            "TextNode(id_='n-1', embedding=None, metadata={'file': 'p.md'}, excluded_llm_metadata_keys=[],"
            " relationships={<NodeRelationship.SOURCE: '1'>: RelatedNodeInfo(node_id='d', hash='a>b')},"
            f" metadata_separator='\\n', text={self.text!r}, mimetype='text/plain', start_char_idx=0)"
        )


def scored(*texts: str) -> str:
    nodes = (f"NodeWithScore(node={Node(text)!r}, score=np.float64(0.5))" for text in texts)
    return f"[{', '.join(nodes)}]"


def cell(value: object) -> str:
    return pd.DataFrame({"question": [Q], "contexts": [value], "answer": [WRONG]}).to_csv(index=False)


def read(tmp_path: Path, name: str, content: str | bytes) -> list[RagRecord]:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_records(path))


def seen(records: list[RagRecord]) -> list[tuple[str | None, list[str | None], str | None]]:
    return [(each.question, [chunk.text for chunk in each.chunks], each.answer) for each in records]


ONE_RECORD: dict[str, tuple[str, str | bytes]] = {
    "a list in a cell": ("r.csv", FRAME.to_csv(index=False)),
    "an array in a cell": ("r.csv", cell(np.array([FIRST, ODD]))),
    "an array of objects in a cell": ("r.csv", cell(np.array([FIRST, ODD], dtype=object))),
    "objects as JSON": ("r.csv", cell(json.dumps([{"page_content": FIRST}, {"text": ODD, "score": 1}]))),
    "documents of LangChain": ("r.csv", cell([Document(FIRST, source="p.md"), Document(ODD)])),
    "documents with odd metadata": (
        "r.csv",
        cell([Document(FIRST, at=pd.Timestamp("2026-01-01"), of=object(), n=float("nan")), Document(ODD)]),
    ),
    "documents as texts": ("r.csv", cell([str(Document(FIRST, source="p.md")), str(Document(ODD))])),
    "documents with scores": ("r.csv", cell([(Document(FIRST), 0.25), (Document(ODD), np.float32(0.5))])),
    "nodes with scores": ("r.csv", cell(scored(FIRST, ODD))),
    "tabs in a file of commas": ("r.csv", FRAME.to_csv(index=False, sep="\t")),
    "semicolons": ("r.csv", FRAME.to_csv(index=False, sep=";")),
    "semicolons that Excel names": ("r.csv", "sep=;\r\n" + FRAME.to_csv(index=False, sep=";")),
    "UTF-16 of a spreadsheet": ("r.csv", FRAME.to_csv(index=False, sep="\t").encode("utf-16")),
    "gzip of lines": ("r.jsonl.gz", gzip.compress(FRAME.to_json(orient="records", lines=True).encode())),
    "zstd of lines": ("r.jsonl.zst", zstd.compress(FRAME.to_json(orient="records", lines=True).encode())),
    "UTF-16 of lines": ("r.jsonl", FRAME.to_json(orient="records", lines=True).encode("utf-16")),
    "a list as text in JSON": (
        "r.jsonl",
        json.dumps({"query": Q, "context": repr([FIRST, ODD]), "output": WRONG}),
    ),
    "one object over several lines": (
        "r.json",
        json.dumps({"question": Q, "contexts": [FIRST, ODD], "answer": WRONG}, indent=2),
    ),
    "DeepEval's run": (
        "r.json",
        json.dumps({"testCases": [{"input": Q, "retrievalContext": [FIRST, ODD], "actualOutput": WRONG}]}),
    ),
    "a prompt and its source documents": (
        "r.jsonl",
        json.dumps({"prompt": Q, "source_documents": [{"pageContent": FIRST}, ODD], "completion": WRONG}),
    ),
    "hits of a search engine": (
        "r.jsonl",
        json.dumps(
            {
                "question": Q,
                "chunks": [
                    {"_id": "a", "_score": 1.5, "_source": {"body": FIRST}},
                    {"id": "b", "score": 0.2, "payload": {"text": ODD}},
                ],
                "answer": WRONG,
            }
        ),
    ),
    "documents of Haystack": (
        "r.csv",
        cell(f"[Document(id={'0a' * 32}, content: {FIRST!r}, meta: {{'p': 1}}), Document(content: {ODD!r})]"),
    ),
    "texts by their ids": (
        "r.jsonl",
        json.dumps({"question": Q, "contexts": {"a.md": FIRST, "b.md": ODD}, "answer": WRONG}),
    ),
    "a run with inputs and outputs": (
        "r.jsonl",
        json.dumps({"inputs": {"question": Q}, "outputs": {"answer": WRONG, "documents": [FIRST, ODD]}}),
    ),
    "parts of a message": (
        "r.jsonl",
        json.dumps(
            {
                "question": Q,
                "documents": [FIRST, {"content": [{"type": "text", "text": ODD}]}],
                "answer": WRONG,
            }
        ),
    ),
}


@pytest.mark.parametrize("form", ONE_RECORD)
def test_a_record_is_read_in_each_form(form: str, tmp_path: Path) -> None:
    assert seen(read(tmp_path, *ONE_RECORD[form])) == [(Q, [FIRST, ODD], WRONG)]


SEVERAL: dict[str, tuple[str, str]] = {
    orient: ("r.json", TWO.to_json(orient=orient))  # type: ignore[call-overload]
    for orient in ("records", "columns", "index", "split", "table")
} | {
    "columns of lists": ("r.json", json.dumps(TWO.to_dict("list"))),
    "columns of lists over several lines": ("r.json", json.dumps(TWO.to_dict("list"), indent=4)),
    "an envelope": ("r.json", json.dumps({"version": 1, "data": TWO.to_dict("records")})),
}


@pytest.mark.parametrize("form", SEVERAL)
def test_the_forms_of_a_data_frame_in_json_are_read(form: str, tmp_path: Path) -> None:
    assert seen(read(tmp_path, *SEVERAL[form])) == [(Q, [FIRST], WRONG), (Q, [SECOND], FIRST)]


@pytest.mark.parametrize("missing", ["nan", "NaN", "None", "NaT", "<NA>", "null", "", "[nan]", "[None]"])
def test_a_missing_value_is_no_text(missing: str, tmp_path: Path) -> None:
    [record] = read(
        tmp_path, "r.csv", f'question,contexts,answer,reference\n{Q},"{missing}",{WRONG},{missing[:4]}\n'
    )
    assert (record.chunks, [gap.reason for gap in record.gaps]) == ((), ["no_retrieval"])
    if "[" not in missing:
        assert record.reference is None
    lines = [
        {"question": Q, "contexts": missing, "answer": WRONG},
        {"question": float("nan"), "contexts": [missing.strip("[]")]},
    ]
    [first, second] = read(tmp_path, "r.jsonl", "\n".join(map(json.dumps, lines)))
    assert (first.chunks, second.chunks, second.question, second.answer) == ((), (), None, None)


@pytest.mark.parametrize(
    "text",
    [
        "[1] Refunds take 14 days.",
        "[draft] Refunds, 14 days",
        "{name} gets a refund",
        "Document (old): refunds take 14 days",
        "print(end='')  # no line break",
        "(see below) Refunds take 14 days.",
        "None of the refunds took longer.",
        '{"currency": "EUR", "days": 14}',
        "array of refunds",
    ],
)
def test_a_text_that_only_looks_like_a_value_stays_a_text(text: str, tmp_path: Path) -> None:
    [record] = read(tmp_path, "r.jsonl", json.dumps({"question": Q, "contexts": text, "answer": WRONG}))
    assert [chunk.text for chunk in record.chunks] == [text]


@pytest.mark.parametrize(
    ("contexts", "said"),
    [
        (
            "['SECRET' 'a' ... 'y' 'z']",
            "row 1: field `contexts`: cannot be read, or leaves items out (`...`)",
        ),
        ("['SECRET', 'b", "row 1: field `contexts`: cannot be read"),
        ("[Document(page_content='SECRET', metadata={'a': ])]", "cannot be read"),
        ("['SECRET', __import__('os').system('touch HERE')]", "cannot be read"),
        (f"['SECRET', {'[' * 100_000}", "cannot be read"),
        ("[{'id': 'SECRET'}]", "field `contexts.0.text`: it is missing"),
        ("[{'id': 'SECRET', 'text': 7}]", "field `contexts.0.text`: write a string"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named_and_never_run(contexts: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, "r.csv", cell(contexts))
    assert said in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert not (tmp_path / "HERE").exists()


def test_our_recreations_of_users_files_are_read() -> None:
    def of(name: str) -> list[RagRecord]:
        return list(read_records(FILES / name))

    both = [FIRST, SECOND]
    assert seen(of("columns.json")) == [(Q, both, WRONG), (Q, [FIRST], FIRST)]
    assert of("columns.json")[0].reference == FIRST
    assert seen(of("camel-case.json")) == [(Q, both, WRONG)]
    assert of("camel-case.json")[0].reference == FIRST
    for name in ("documents.csv", "python-list.csv", "numpy-array.csv"):
        assert seen(of(name)) == [(Q, both, WRONG)]
    assert of("documents.csv")[0].chunks[0].metadata == {"source": "p.md"}
    assert seen(of("nan.csv")) == [(Q, [], WRONG), (Q, [], WRONG)]
    assert seen(of("objects.jsonl")) == [(Q, [FIRST, SECOND, SECOND], WRONG)]
