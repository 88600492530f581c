"""The demo's traffic: labeled answers, and an instrumented RAG application that replays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict

import ragtrace
from ragtrace.model import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAnswer:
    """A question, the passages retrieved for it, a model's answer, and what people said of it."""

    id: str
    question: str
    chunks: tuple[Chunk, ...]
    answer: str
    model: str
    sentences: tuple[LabeledSentence, ...]
    """What the annotators labeled, in the order of the answer."""

    @property
    def is_faithful(self) -> bool:
        """Whether the annotators left every sentence unmarked."""
        return not self.marked_sentences

    @property
    def marked_sentences(self) -> tuple[str, ...]:
        """The sentences with a mark."""
        return tuple(sentence.text for sentence in self.sentences if sentence.label != "supported")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class AnnotatedText(_Frozen):
    """What the annotators marked in a sentence."""

    text: str
    type: str
    """Their word for it: ``Evident Conflict``, ``Subtle Baseless Info``, …"""


class SampleEvidence(_Frozen):
    """What contradicts a sentence; not the annotators', but ragtrace's own."""

    context: str
    """The passage's id."""
    quote: str


class LabeledSentence(_Frozen):
    """A sentence of an answer, with what the annotators said of it."""

    text: str
    label: Literal["supported", "contradicted", "neutral"]
    marked: tuple[AnnotatedText, ...] = ()
    evidence: SampleEvidence | None = None


class _Passage(BaseModel):
    id: str
    text: str


class _Row(BaseModel):
    id: str
    question: str
    contexts: list[_Passage]
    answer: str
    model: str
    claims: list[LabeledSentence]
    """The sentences of the answer, in the form that `ragtrace calibrate` reads."""


def load_sample() -> tuple[DemoAnswer, ...]:
    """Read the sample of RAGTruth that is shipped with ragtrace."""
    text = (files("ragtrace.cli") / "data" / "ragtruth_qa_sample.jsonl").read_text("utf-8")
    return tuple(_labeled(_Row.model_validate_json(line)) for line in text.splitlines())


def _labeled(row: _Row) -> DemoAnswer:
    return DemoAnswer(
        id=row.id,
        question=row.question,
        chunks=tuple(
            Chunk(id=passage.id, text=passage.text, rank=rank) for rank, passage in enumerate(row.contexts)
        ),
        answer=row.answer,
        model=row.model,
        sentences=tuple(row.claims),
    )


class ReplayedRag:
    """A RAG application whose retriever and model answer as they did when the sample was recorded.

    It is instrumented as any application would be: a span for the call, the retrieval and the generation.
    """

    def __init__(self, sample: Sequence[DemoAnswer]) -> None:
        self._recorded = {each.question: each for each in sample}

    def answer(self, question: str) -> str:
        """Answer a question and return the id of the trace that shows how, in hex."""
        with ragtrace.rag(question=question, name="ask") as call:
            chunks = self._retrieve(question)
            call.set_answer(self._generate(question, chunks))
            return call.trace_id or ""

    def _retrieve(self, question: str) -> tuple[Chunk, ...]:
        with ragtrace.retrieval(query=question, data_source="ms-marco", top_k=3) as retrieval:
            chunks = self._recorded[question].chunks
            retrieval.set_chunks(chunks)
            return chunks

    def _generate(self, question: str, chunks: Sequence[Chunk]) -> str:
        recorded = self._recorded[question]
        passages = "\n\n".join(f"{chunk.id}: {chunk.text}" for chunk in chunks)
        messages = [
            {"role": "system", "content": "Answer the question from the passages alone."},
            {"role": "user", "content": f"{passages}\n\nQuestion: {question}"},
        ]
        with ragtrace.generation(model=recorded.model, messages=messages) as generation:
            generation.set_answer(recorded.answer)
            return recorded.answer
