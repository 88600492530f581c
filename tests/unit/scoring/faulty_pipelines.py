"""RAG pipelines with one fault each, as spans of real instrumentations: retriever, reranker, prompt, answer.

Every pipeline has a corpus of its own. Its judge knows the truth: which chunk is relevant, and, by words,
what supports or contradicts a claim.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from ragtrace import semconv
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.scoring.blame import BlameClass
from ragtrace.traces.trace import Span, SpanKind, Trace
from tests.rag_spans import rag_trace, trace_id_of

SYLLABLES: Final = (
    *("bel", "cor", "dra", "fen", "gol", "hup", "kir"),
    *("lum", "mor", "nex", "pru", "qua", "sil", "tov"),
)
FILLER: Final = (
    "Clean the filter with a soft brush before you start it. Keep it away from frost and direct sun. "
)
ASIDE: Final = "Its lid is made of blue glass."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What each hop hands on, and the answer."""

    question: str
    retrieved: tuple[str, ...]
    reranked: tuple[str, ...] | None
    prompt: tuple[str, ...]
    answer: str
    reference: str
    relevant: frozenset[str] = frozenset()

    def trace(self, number: int) -> Trace:
        """Return the spans of the call."""
        root, retrieval, generation = rag_trace(
            number, question=self.question, chunks=self.retrieved, answer=self.answer
        )
        prompt = "\n\n".join(self.prompt)
        messages = [
            {"role": "system", "parts": [{"type": "text", "content": "Answer from the passages."}]},
            {
                "role": "user",
                "parts": [{"type": "text", "content": f"{prompt}\n\nQuestion: {self.question}"}],
            },
        ]
        attributes = {**generation.attributes, semconv.INPUT_MESSAGES: json.dumps(messages)}
        spans = [root, retrieval, replace(generation, attributes=attributes)]
        if self.reranked is not None:
            spans.append(self._reranker(retrieval))
        return Trace.of(trace_id_of(number), spans)

    def _reranker(self, retrieval: Span) -> Span:
        attributes: dict[str, str | float] = {
            semconv.OI_KIND: "RERANKER",
            "reranker.query": self.question,
        }
        for place, text in enumerate(self.reranked or ()):
            prefix = f"reranker.output_documents.{place}.document."
            attributes[f"{prefix}id"] = f"chunk-{self.retrieved.index(text)}"
            attributes[f"{prefix}content"] = text
        return replace(
            retrieval,
            span_id="00000000000000a9",
            name="rerank",
            kind=SpanKind.INTERNAL,
            start_ns=retrieval.end_ns + 1_000,
            end_ns=retrieval.end_ns + 2_000,
            attributes=attributes,
        )

    def judge(self) -> ScriptedJudge:
        """Return the judge that knows the truth."""
        every = dict.fromkeys(self.retrieved, 0)
        return ScriptedJudge(Script(chunks={**every, **{text: 2 for text in self.relevant if text in every}}))


@dataclass(slots=True)
class Corpus:
    """Passages about machines, each with a number that a question asks for."""

    chance: Random
    names: list[str] = field(default_factory=list)

    def name(self) -> str:
        while (name := "".join(self.chance.sample(SYLLABLES, 3)).capitalize()) in self.names:
            pass
        self.names.append(name)
        return name

    def fact(self, name: str, liters: int) -> str:
        return f"The {name} pump needs {liters} liters of water a day."

    def passage(self, name: str, liters: int, *, is_late: bool = False) -> str:
        filler = FILLER * self.chance.randint(1, 3)
        fact = self.fact(name, liters)
        return f"{filler}{fact}" if is_late else f"{fact} {filler}".strip()


def pipeline(fault: BlameClass | None, chance: Random, *, has_reranker: bool = True) -> Pipeline:
    """Build a pipeline with this fault, or a healthy one."""
    corpus = Corpus(chance)
    name, liters = corpus.name(), chance.randint(100, 499)
    wrong = corpus.fact(name, liters + chance.randint(1, 400))
    gold = corpus.passage(name, liters, is_late=fault is BlameClass.TRUNCATED_CONTEXT)
    others = [corpus.passage(corpus.name(), chance.randint(500, 999)) for _ in range(4)]
    invented = f"{name} machines run on {liters + 7} volts at night."
    question = f"How many liters of water does the {name} pump need a day?"
    healthy = Pipeline(
        question=question,
        retrieved=_mixed(chance, gold, *others),
        reranked=_mixed(chance, gold, *others[:2]) if has_reranker else None,
        prompt=(),
        answer=corpus.fact(name, liters),
        reference=corpus.fact(name, liters),
        relevant=frozenset({gold}),
    )
    final = (gold, *others[:2])
    match fault:
        case None:
            built = healthy
        case BlameClass.RETRIEVAL_MISS:
            built = replace(healthy, retrieved=tuple(others), reranked=tuple(others[:2]), answer=invented)
        case BlameClass.RERANK_DROP:
            built = replace(healthy, reranked=tuple(others[:2]), answer=invented)
        case BlameClass.TRUNCATED_CONTEXT:
            kept = gold[: gold.index(corpus.fact(name, liters))]
            cut = () if chance.random() < 0.5 else (kept,)
            built = replace(healthy, answer=chance.choice([wrong, invented]), prompt=(*others[:2], *cut))
        case BlameClass.STALE_OR_CONFLICTING_CHUNKS:
            old = corpus.passage(name, liters - 50)
            final = (gold, old, others[0])
            built = replace(
                healthy, retrieved=(gold, old, *others), relevant=frozenset({gold, old}), reranked=final
            )
        case BlameClass.CONTRADICTED_CONTEXT:
            built = replace(healthy, answer=wrong)
        case BlameClass.IGNORED_CONTEXT:
            refusal = "I cannot answer this question from the passages."
            built = replace(healthy, answer=chance.choice([refusal, invented]))
        case BlameClass.FABRICATED:
            built = replace(healthy, answer=f"{corpus.fact(name, liters)} {ASIDE}")
        case BlameClass.UNANSWERABLE:
            refusal = "I cannot answer this question from the passages."
            built = replace(healthy, retrieved=tuple(others), reranked=tuple(others[:2]), answer=refusal)
    if built.reranked is not None and not has_reranker:
        built = replace(built, reranked=None)
    shown = built.reranked if built.reranked is not None else built.retrieved
    return built if built.prompt else replace(built, prompt=shown)


def _mixed(chance: Random, *texts: str) -> tuple[str, ...]:
    return tuple(chance.sample(texts, len(texts)))
