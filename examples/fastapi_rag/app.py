"""A RAG service: FastAPI, BM25 over a handbook, whole and streamed answers. No network, no key."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

import ragtrace
from ragtrace import Chunk

TOP_K = 3
NOTHING_FOUND = "The handbook does not say."


class Ask(BaseModel):
    question: str = Field(min_length=1, max_length=2_000)
    session_id: str | None = None


class Answered(BaseModel):
    answer: str
    sources: list[str]
    trace_id: str | None


class Handbook:
    """Sections of a Markdown file, searched by BM25."""

    def __init__(self, text: str) -> None:
        sections = [part.partition("\n") for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]]
        self._texts = {title.strip().lower(): " ".join(body.split()) for title, _, body in sections}
        self._words = {title: words(f"{title} {body}") for title, body in self._texts.items()}
        self._mean_size = sum(counts.total() for counts in self._words.values()) / len(self._words)

    @ragtrace.retrieval(data_source="handbook", top_k=TOP_K)
    def search(self, question: str) -> list[Chunk]:
        """Find the sections that answer a question, best first."""
        scores = {title: self._score(words(question), counts) for title, counts in self._words.items()}
        best = sorted(scores, key=lambda title: -scores[title])[:TOP_K]
        return [
            Chunk(id=title, text=self._texts[title], rank=rank, score=scores[title])
            for rank, title in enumerate(best)
            if scores[title] > 0
        ]

    def _score(self, wanted: Counter[str], counts: Counter[str]) -> float:
        size = counts.total() / self._mean_size
        return sum(
            self._rarity(word) * counts[word] * 2.2 / (counts[word] + 1.2 * (0.25 + 0.75 * size))
            for word in wanted
        )

    def _rarity(self, word: str) -> float:
        found = sum(word in counts for counts in self._words.values())
        return math.log(1 + (len(self._words) - found + 0.5) / (found + 0.5))


STOP_WORDS = frozenset(
    [
        "and",
        "are",
        "can",
        "does",
        "for",
        "how",
        "long",
        "not",
        "the",
        "what",
        "when",
        "where",
        "which",
        "with",
    ]
)


def words(text: str) -> Counter[str]:
    return Counter(
        word for word in re.findall(r"\w+", text.lower()) if len(word) > 2 and word not in STOP_WORDS
    )


@dataclass(frozen=True)
class Extractive:
    """A stand-in for a language model: it quotes the sentence that shares most words with the question."""

    model: str = "extractive-1"

    async def stream(self, question: str, chunks: list[Chunk]) -> AsyncIterator[str]:
        """Write the answer word by word."""
        messages = [
            {"role": "system", "content": "Answer from the sections alone."},
            {"role": "user", "content": "\n\n".join([*(chunk.text or "" for chunk in chunks), question])},
        ]
        with ragtrace.generation(model=self.model, messages=messages) as chat:
            for piece in re.findall(r"\S+\s*", self._best_sentence(question, chunks)):
                await asyncio.sleep(0)
                chat.add_answer(piece)
                yield piece

    def _best_sentence(self, question: str, chunks: list[Chunk]) -> str:
        sentences = [each for chunk in chunks for each in re.split(r"(?<=[.!?])\s+", chunk.text or "")]
        wanted = words(question)
        return max(sentences, key=lambda each: (words(each) & wanted).total(), default=NOTHING_FOUND)


handbook = Handbook((Path(__file__).parent / "handbook.md").read_text(encoding="utf-8"))
model = Extractive()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Switch capture on with the service, and send what is queued before it ends."""
    ragtrace.instrument(service_name="fastapi-rag")
    yield
    await asyncio.to_thread(ragtrace.uninstrument)


app = FastAPI(title="Handbook", lifespan=lifespan)


@app.post("/ask")
async def ask(request: Ask) -> Answered:
    """Answer a question."""
    with ragtrace.rag(question=request.question, name="handbook", session_id=request.session_id) as call:
        chunks = handbook.search(request.question)
        call.answer = text = "".join([piece async for piece in model.stream(request.question, chunks)])
        return Answered(answer=text, sources=[chunk.id for chunk in chunks], trace_id=call.trace_id)


@app.post("/stream")
async def stream(request: Ask) -> StreamingResponse:
    """Answer a question as it is written."""
    return StreamingResponse(answer(request.question), media_type="text/plain; charset=utf-8")


@ragtrace.rag(name="handbook")
async def answer(question: str) -> AsyncIterator[str]:
    chunks = handbook.search(question)
    async for piece in model.stream(question, chunks):
        yield piece
