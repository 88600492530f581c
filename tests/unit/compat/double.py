"""A peer's way to its models, fed from canned replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragtrace.compat.tool import ToolMetric, ToolOptions, ToolRun
from ragtrace.model import Chunk, RagRecord
from ragtrace.ports import FreeText, SamplingParameters

NO_REASON = ToolOptions(include_reason=False)


class CannedCalls:
    """Answers each step with its replies in order; the last one repeats."""

    def __init__(
        self,
        replies: Mapping[str, Sequence[str]],
        vectors: Mapping[str, Sequence[float]] | None = None,
        *,
        cut_off: bool = False,
    ) -> None:
        self._replies = {step: list(texts) for step, texts in replies.items()}
        self._vectors = vectors or {}
        self._cut_off = cut_off
        self.asked: list[str] = []
        self.prompts: list[str] = []
        self.embedded: list[str] = []

    async def text(
        self,
        step: str,
        prompt: str,
        *,
        system: str = "",
        sampling: SamplingParameters | None = None,
        max_output_tokens: int = 4096,
    ) -> FreeText:
        self.asked.append(step)
        self.prompts.append(f"{system}\n\n{prompt}" if system else prompt)
        replies = self._replies[step]
        return FreeText(text=replies.pop(0) if len(replies) > 1 else replies[0], cut_off=self._cut_off)

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        self.embedded.extend(texts)
        return tuple(tuple(self._vectors[text]) for text in texts)


def record(
    *,
    question: str | None = "Where was Einstein born?",
    answer: str | None = "Einstein was born in Ulm.",
    contexts: Sequence[str] = ("Albert Einstein was born in Ulm.", "He was born on 14 March 1879."),
    reference: str | None = "In Ulm.",
) -> RagRecord:
    """Return a record with the given parts."""
    chunks = tuple(Chunk(id=f"chunk-{rank}", text=text, rank=rank) for rank, text in enumerate(contexts))
    return RagRecord(id="r", question=question, chunks=chunks, answer=answer, reference=reference)


def metric_of(metrics: Sequence[ToolMetric], metric: str, profile: str) -> ToolMetric:
    """Return the one with the names."""
    return next(tool for tool in metrics if (tool.metric, tool.profile) == (metric, profile))


def outcome(run: ToolRun) -> tuple[str, float | None]:
    """Return what the peer says."""
    return run.status.value, run.score
