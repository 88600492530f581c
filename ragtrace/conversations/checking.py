"""Ask what earlier turns say about the claims of a later one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ragtrace.conversations.turns import Turn
from ragtrace.metrics.session import StepSession
from ragtrace.model import Chunk, Claim, RagRecord, Usage, Verdict, VerdictLabel
from ragtrace.pipeline.evaluator import Evaluator

_CONFLICT: Final = "conflict"
_REPEATED: Final = "repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLink:
    """What a claim of a later turn has to do with an earlier turn."""

    claim: int
    """Its place among the claims of the later turn."""
    trace_id: str
    """Of the earlier turn."""
    span_id: str
    quote: str
    """What the earlier answer says, word for word."""
    is_conflict: bool
    """It says the opposite; else it says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCheck:
    """The reply about one turn."""

    links: tuple[TurnLink, ...]
    usage: Usage = field(default_factory=Usage)

    def to_json(self) -> bytes:
        """Serialize the links; `check_of_json` reads them."""
        kinds = {True: _CONFLICT, False: _REPEATED}
        rows = [
            [link.claim, link.trace_id, link.span_id, link.quote, kinds[link.is_conflict]]
            for link in self.links
        ]
        return json.dumps(rows).encode()


def check_of_json(text: bytes) -> TurnCheck:
    """Read the links of a check."""
    rows: list[list[Any]] = json.loads(text)
    return TurnCheck(
        links=tuple(
            TurnLink(claim=claim, trace_id=trace, span_id=span, quote=quote, is_conflict=kind == _CONFLICT)
            for claim, trace, span, quote, kind in rows
        )
    )


async def check_turn(turn: Turn, earlier: Sequence[Turn], evaluator: Evaluator) -> TurnCheck:
    """Ask which claims of a turn the earlier answers contradict, and which they make too.

    It is the step ``verify`` of faithfulness, with the earlier answers in place of chunks: quotes are
    checked, and a chunk that does not exist is refused. A verdict without a checked quote is no link. Without
    a claim or an earlier answer nobody is asked.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    if not turn.claims or not earlier:
        return TurnCheck(links=())
    chunks = tuple(Chunk(id=str(place), text=one.answer, rank=place) for place, one in enumerate(earlier))
    record = RagRecord(id=turn.span_id, question=turn.question, chunks=chunks, answer=turn.answer)
    steps = StepSession(
        record,
        evaluator.judge,
        prompts=evaluator.prompts,
        limits=evaluator.limits,
        second_judge=evaluator.second_judge,
    )
    await steps.take_claims(
        [
            Claim(index=index, text=claim.text, start=claim.start, end=claim.end)
            for index, claim in enumerate(turn.claims)
        ]
    )
    verdicts = (await steps.verify()).verdicts
    return TurnCheck(
        links=tuple(_link(verdict, earlier) for verdict in verdicts if _is_link(verdict)), usage=steps.usage
    )


def _is_link(verdict: Verdict) -> bool:
    is_about_it = verdict.label in (VerdictLabel.CONTRADICTED, VerdictLabel.SUPPORTED)
    return is_about_it and bool(verdict.chunk_ids) and bool(verdict.quote)


def _link(verdict: Verdict, earlier: Sequence[Turn]) -> TurnLink:
    named = earlier[int(verdict.chunk_ids[0])]
    return TurnLink(
        claim=verdict.claim.index,
        trace_id=named.trace_id,
        span_id=named.span_id,
        quote=verdict.quote or "",
        is_conflict=verdict.label is VerdictLabel.CONTRADICTED,
    )
