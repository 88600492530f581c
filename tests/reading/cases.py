"""Traces after reports of users, with what a person reads in them: `tests/data/cases`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ragtrace.model import RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span, Trace

FOLDER = Path(__file__).parents[1] / "data" / "cases"

Grade: TypeAlias = Literal["right", "partly", "wrong", "silent"]

Q = "How long do refunds take?"
A = "Refunds take 30 days."
PAID = "Refunds are paid within 14 days of the return."
UNUSED = "Returned goods must be unused and in their box."


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One answer that a person finds in a trace."""

    question: str = Q
    chunks: tuple[str, ...] = (PAID,)
    answer: str = A
    ids: tuple[str, ...] = ()
    """The chunks' ids, if the trace has them."""
    incomplete: str = ""
    """Words of the reason, if the answer is only a part of what the user would have got."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A trace and its answers; none if it holds no RAG call."""

    name: str
    spans: tuple[Span, ...]
    expected: tuple[Expected, ...]
    kind: str = ""


BOTH = Expected(chunks=(PAID, UNUSED))
ONE = Expected()
SHIPPING = Expected(
    question="Who pays return shipping?",
    chunks=("Customers pay for return shipping.",),
    answer="The shop pays.",
)
WRAPS = "Gift wrap costs 3 euros."
WRAPPING = Expected(question="Is gift wrap free?", chunks=(WRAPS,), answer=WRAPS)

EXPECTED: Mapping[str, Sequence[Expected]] = {
    **dict.fromkeys(
        (
            *("alibaba-genai", "anthropic-search-results", "azure-ai-inference", "clock-skew"),
            *("clock-skew-small", "dspy-json-custom", "dspy-json-response", "genkit", "history-in-user"),
            *("litellm-proxy-acompletion", "prompt-anythingllm", "prompt-bedrock-kb", "prompt-dify"),
            *("prompt-haystack-doc", "prompt-langchain4j", "prompt-spring-qa", "spring-ai-content"),
            "trulens",
        ),
        (BOTH,),
    ),
    **dict.fromkeys(
        (
            *("azure-ai-agents", "cohere-documents", "google-adk", "guardrails"),
            *("langgraph-custom-state", "langgraph-supervisor", "logfire-openai-old"),
            *("multimodal-question", "openai-file-search-langfuse", "openai-file-search-otel"),
            *("pydantic-ai-v1", "semantic-kernel-net", "strands-events", "strands-latest"),
            *("structured-output", "two-tools"),
        ),
        (ONE,),
    ),
    **dict.fromkeys(
        (
            *("memory-summary", "openwebui-title", "openwebui-title-after-rag", "query-rewrite"),
            *("ragas-eval-run", "spring-ai"),
        ),
        (),
    ),
    "batch-root": [ONE, SHIPPING, WRAPPING],
    "conversation-root": [ONE, SHIPPING],
    "langgraph-crag": [BOTH],
    "lightrag-real-kg": [Expected(chunks=(PAID, UNUSED), answer=PAID)],
    "lightrag-real-naive": [Expected(chunks=(PAID, UNUSED), answer=PAID)],
    **dict.fromkeys(
        ("openwebui-rag-system", "openwebui-rag-user"),
        (Expected(chunks=(PAID, UNUSED), answer=f"{A} [1]"),),
    ),
    "mastra": [Expected(chunks=(PAID, UNUSED), ids=("1", "2"))],
    **dict.fromkeys(
        ("otel-genai-langchain", "otel-genai-langchain-stream"),
        (Expected(chunks=("Refunds take 14 days.", "Shops open at nine."), ids=("d1", "d2")),),
    ),
    "prompt-azure-search-demo": [
        Expected(chunks=(f"policy.pdf#page=1: {PAID}", f"terms.pdf#page=4: {UNUSED}"))
    ],
    "prompt-lc-retrievalqa-chat-2": [Expected(chunks=(PAID, UNUSED), answer=PAID)],
    "think-answer": [Expected(answer=PAID)],
}


def reported() -> tuple[Case, ...]:
    """Read every case that was made after a report."""
    return tuple(
        Case(name=path.stem, spans=_spans(path), expected=tuple(EXPECTED[path.stem]), kind="reported")
        for path in sorted(FOLDER.glob("*.jsonl"))
    )


def read(case: Case) -> list[Mapping[str, Any]]:
    """Return what is read from a case, in the form in which `ragtrace explain --json` shows it."""
    by_trace = groupby(sorted(case.spans, key=lambda each: each.trace_id), key=lambda each: each.trace_id)
    return [
        _shown(record) for key, spans in by_trace for record in extract_records(Trace.of(key, spans)).records
    ]


def _shown(record: RagRecord) -> Mapping[str, Any]:
    return {
        "question": record.question,
        "answer": record.answer,
        "contexts": [{"id": chunk.id, "text": chunk.text} for chunk in record.chunks],
        "gaps": [
            {"part": str(gap.part), "reason": str(gap.reason), "detail": gap.detail} for gap in record.gaps
        ],
    }


def grade(case: Case, records: Sequence[Mapping[str, Any]]) -> Grade:
    """Compare what would be judged with what a person finds."""
    judged = [each for each in records if not any(gap["part"] != "reference" for gap in each["gaps"])]
    whole = [each for each in case.expected if not each.incomplete]
    if len(judged) > len(whole):
        return "wrong"
    if len(judged) < len(whole):
        return "silent" if not judged else "wrong"
    grades = [_grade(record, each) for record, each in zip(judged, whole, strict=True)]
    broken = [each for each in case.expected if each.incomplete]
    grades += ["right" if any(_is_broken(record, each) for record in records) else "wrong" for each in broken]
    return next((worst for worst in ("wrong", "silent", "partly") if worst in grades), "right")


def _is_broken(record: Mapping[str, Any], expected: Expected) -> bool:
    """Return whether the answer is said to be a part, for the true reason."""
    return any(
        gap["part"] == "answer"
        and gap["reason"] in ("incomplete", "failed_call")
        and expected.incomplete in gap["detail"]
        for gap in record["gaps"]
    )


def _grade(record: Mapping[str, Any], expected: Expected) -> Grade:
    said = record["answer"].strip() if record["answer"] else None
    if (record["question"], said) != (expected.question, expected.answer):
        return "wrong"
    texts = tuple(_flat(chunk["text"] or "") for chunk in record["contexts"])
    wanted = tuple(_flat(each) for each in expected.chunks)
    if texts != wanted and texts != (" ".join(wanted),):
        return "partly" if set(texts) & set(wanted) else "wrong"
    ids = tuple(chunk["id"] for chunk in record["contexts"])
    return "right" if not expected.ids or ids == expected.ids else "partly"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _spans(path: Path) -> tuple[Span, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(span for line in lines if line.strip() for span in decode_json(json.dumps(json.loads(line))))
