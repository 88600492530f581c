"""Records of plain values, and of the samples and documents of other tools, as Python code has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pydantic import BaseModel, Field

import ragtrace
from ragtrace.model import Chunk, RagRecord

Q = "How long do refunds take?"
FIRST = "Refunds are paid within 14 days of the return."
SECOND = "Returned goods must be unused."
WRONG = "Refunds are paid within 30 days of the return."


class SingleTurnSample(BaseModel):
    """Has the fields of RAGAS' sample."""

    user_input: str | None = None
    retrieved_contexts: list[str] | None = None
    reference_contexts: list[str] | None = None
    response: str | None = None
    multi_responses: list[str] | None = None
    reference: str | None = None
    rubrics: dict[str, str] | None = None


class LLMTestCase(BaseModel):
    """Has the fields of DeepEval's test case."""

    input: str
    actual_output: str | None = Field(default=None, serialization_alias="actualOutput")
    expected_output: str | None = None
    context: list[str] | None = None
    retrieval_context: list[str] | None = None
    tools_called: list[str] | None = None
    multimodal: bool = False


@dataclass
class OwnCase:
    question: str
    contexts: list[Any]
    answer: str
    took_s: float = 0.5


class OwnTuple(NamedTuple):
    query: str
    documents: list[Any]
    response: str


class Plain:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class LangChainDocument(BaseModel):
    id: str | None = None
    metadata: dict[str, Any] = {}
    page_content: str
    type: str = "Document"


class MediaResource(BaseModel):
    text: str | None = None


class LlamaIndexNode(BaseModel):
    id_: str = "n-1"
    metadata: dict[str, Any] = {}
    text_resource: MediaResource | None = None


@dataclass
class NodeWithScore:
    node: LlamaIndexNode
    score: float | None = None


def document(text: str, **metadata: Any) -> LangChainDocument:
    return LangChainDocument(page_content=text, metadata=metadata)


def node(text: str) -> NodeWithScore:
    return NodeWithScore(LlamaIndexNode(text_resource=MediaResource(text=text)), 0.75)


SAMPLES: dict[str, Any] = {
    "RAGAS": SingleTurnSample(
        user_input=Q, retrieved_contexts=[FIRST, SECOND], response=WRONG, reference=FIRST
    ),
    "DeepEval": LLMTestCase(
        input=Q,
        retrieval_context=[FIRST, SECOND],
        context=["the ideal"],
        actual_output=WRONG,
        expected_output=FIRST,
    ),
    "a dataclass": OwnCase(Q, [FIRST, SECOND], WRONG),
    "a named tuple": OwnTuple(Q, [FIRST, SECOND], WRONG),
    "an object": Plain(question=Q, contexts=[FIRST, SECOND], answer=WRONG),
    "a mapping": {"query": Q, "context": [FIRST, SECOND], "output": WRONG},
    "documents of LangChain": OwnCase(Q, [document(FIRST, source="p.md"), document(SECOND)], WRONG),
    "documents with scores": OwnCase(
        Q, [(document(FIRST), 0.5), (document(SECOND), np.float32(0.25))], WRONG
    ),
    "nodes of LlamaIndex": OwnCase(Q, [node(FIRST), node(SECOND)], WRONG),
    "an array": {"question": Q, "contexts": np.array([FIRST, SECOND]), "answer": WRONG},
    "a record": RagRecord.of(question=Q, contexts=[FIRST, SECOND], answer=WRONG),
}


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_sample_of_another_tool_is_a_record_at_every_door(name: str) -> None:
    sample = SAMPLES[name]
    record = RagRecord.of(sample)
    assert (record.question, [chunk.text for chunk in record.chunks], record.answer) == (
        Q,
        [FIRST, SECOND],
        WRONG,
    )
    assert record.reference == (FIRST if name in ("RAGAS", "DeepEval") else None)
    [outcome] = (await ragtrace.evaluate(sample, judge="scripted")).results
    assert (outcome.label, outcome.score) == ("fail", 0.0)
    [result] = ragtrace.evaluate_records([sample], judge="scripted")
    assert result.record is not None, result.error
    assert [chunk.text for chunk in result.record.chunks] == [FIRST, SECOND]
    assert result.evaluation is not None
    assert [each.label for each in result.evaluation.results] == ["fail"]


@pytest.mark.parametrize(
    ("contexts", "chunks"),
    [
        ("one text", [("one text", None)]),
        (document(FIRST), [(FIRST, None)]),
        (node(FIRST), [(FIRST, 0.75)]),
        ([document(FIRST), "two"], [(FIRST, None), ("two", None)]),
        ({"text": FIRST, "score": 0.5}, [(FIRST, 0.5)]),
        ((text for text in (FIRST, SECOND)), [(FIRST, None), (SECOND, None)]),
        ([Chunk(id="c", text=FIRST, score=2.0), float("nan"), None, SECOND], [(FIRST, 2.0), (SECOND, None)]),
        (f"[{FIRST!r}, {SECOND!r}]", [(FIRST, None), (SECOND, None)]),
        (None, []),
        (float("nan"), []),
        ([], []),
    ],
    ids=range(11),
)
def test_contexts_are_read_in_any_form(contexts: Any, chunks: list[tuple[str, float | None]]) -> None:
    record = RagRecord.of(question=Q, contexts=contexts, answer=WRONG)
    assert [(chunk.text, chunk.score) for chunk in record.chunks] == chunks
    assert [chunk.rank for chunk in record.chunks] == list(range(len(chunks)))


def test_a_mapping_names_the_chunks_and_a_document_keeps_what_it_has() -> None:
    assert [(chunk.id, chunk.text) for chunk in RagRecord.of(contexts={"faq-12": FIRST}).chunks] == [
        ("faq-12", FIRST)
    ]
    given = LangChainDocument(
        id="d-1", page_content=FIRST, metadata={"source": "p.md", "at": pd.Timestamp(0)}
    )
    [chunk] = RagRecord.of(contexts=[given]).chunks
    assert (chunk.id, chunk.metadata["source"]) == ("d-1", "p.md")
    assert str(chunk.metadata["at"]).startswith("1970-01-01")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"qestion": Q}, "no `qestion`: did you mean `question`?"),
        ({"question": 7}, "`question` must be a string, and is a int"),
        ({"contexts": 7}, "has no text under a known name"),
        ({"contexts": [{"id": "x"}]}, "has no text under a known name"),
        ({"contexts": ["a"], "context": ["b"]}, "`contexts` and `context` both name the contexts"),
        ({"contexts": "['a', ..."}, "cannot be read, or leaves items out"),
    ],
)
def test_what_cannot_be_read_is_told(values: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        RagRecord.of(**values)
    assert said in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*unknown field")
@pytest.mark.parametrize("sample", [7, object(), {"a": 1}, Plain(a=1), [Q]], ids=range(5))
def test_what_is_no_sample_is_told(sample: Any) -> None:
    with pytest.raises(TypeError, match="has none of the parts of a record"):
        RagRecord.of(sample)
    [result] = ragtrace.evaluate_records([sample], judge="scripted")
    assert result.record is None
    assert "row 1: is no" in result.error


@dataclass
class DataSet:
    """Iterates over its rows, as those of Hugging Face and RAGAS do."""

    rows: list[Any]
    column_names: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


ROW = {"question": Q, "contexts": [FIRST], "answer": WRONG}
SETS: dict[str, Any] = {
    "Hugging Face": DataSet([ROW, ROW], list(ROW)),
    "RAGAS": DataSet([SAMPLES["RAGAS"], SAMPLES["RAGAS"]]),
    "DeepEval": Plain(test_cases=[SAMPLES["DeepEval"]] * 2),
    "columns": {name: [value, value] for name, value in ROW.items()},
    "pyarrow": pa.Table.from_pylist([ROW, ROW]),
    "a generator": (row for row in (ROW, ROW)),
}


@pytest.mark.parametrize("name", SETS)
def test_data_sets_are_read(name: str) -> None:
    results = ragtrace.evaluate_records(SETS[name], judge="scripted")
    assert [result.error for result in results] == ["", ""]
    assert [result.evaluation.results[0].label for result in results if result.evaluation] == ["fail", "fail"]


@pytest.mark.parametrize(
    "cell", [f"['{FIRST}', '{SECOND}']", np.array([FIRST, SECOND]), [document(FIRST), SECOND]]
)
def test_a_frame_has_lists_in_its_cells_or_their_texts(cell: Any) -> None:
    frame = pd.DataFrame({"question": [Q], "contexts": [cell], "answer": [WRONG], "ground_truth": [np.nan]})
    result = ragtrace.evaluate_records(frame, judge="scripted", metrics=["faithfulness", "context_recall"])
    assert list(result["faithfulness_label"]) == ["fail"]
    assert list(result["context_recall_label"]) == ["skipped"]
