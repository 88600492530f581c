"""What the turns of a session come to: faithful answers, contradictions, and wrong claims that come again.

- A turn is *faithful* as its own metric faithfulness decided.
- A *contradiction* is a claim of which an earlier answer says the opposite. If the later claim is supported
  by its own context and the earlier one was wrong, it is a *correction*, and no fault.
- A claim is *repeated* if it was wrong in an earlier turn and is made again while its own context still does
  not support it: word for word, or as the judge's quote of the earlier answer shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ragtrace.answers.rows import from_json, to_json
from ragtrace.conversations.turns import Turn, TurnClaim, in_order
from ragtrace.metrics.session import StepSession
from ragtrace.model import Chunk, Claim, Label, RagRecord, Usage, Verdict, VerdictLabel
from ragtrace.pipeline.evaluator import Evaluator


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
        return to_json(replace(self, usage=Usage()))


def check_of_json(text: bytes) -> TurnCheck:
    """Read the links of a check.

    Raises:
        InputError: it is none, or of another version of ragtrace.
    """
    return from_json(TurnCheck, text)


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


_NOT_WORDS: Final = re.compile(r"[\W_]+")
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFault:
    """A claim of a later turn, and what it has to do with an earlier one."""

    later: Turn
    claim: int
    """Its place among the claims of the later turn."""
    earlier: Turn
    quote: str
    """What the earlier answer says."""

    @property
    def text(self) -> str:
        """The claim."""
        return self.later.claims[self.claim].text


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFindings:
    """A session in numbers, with the evidence."""

    turns: tuple[Turn, ...]
    """In order."""
    contradictions: tuple[TurnFault, ...] = ()
    corrections: tuple[TurnFault, ...] = ()
    repeated: tuple[TurnFault, ...] = ()
    unchecked: int = 0
    """Turns that could not be checked against earlier ones: their contradictions are not known."""
    usage: Usage = field(default_factory=Usage)
    """Of the judge, for the checks that were made for this."""

    @property
    def faithful(self) -> int:
        """Turns whose answers are faithful."""
        return sum(turn.is_faithful is True for turn in self.turns)

    @property
    def decided(self) -> int:
        """Turns of which faithfulness is known."""
        return sum(turn.is_faithful is not None for turn in self.turns)

    @property
    def faithful_share(self) -> float | None:
        """Faithful turns / decided turns; ``None`` if none is decided."""
        return self.faithful / self.decided if self.decided else None

    @property
    def label(self) -> Label:
        """Fail with a fault; pass if all is decided and checked without one; else skipped."""
        if self.faithful < self.decided or self.contradictions or self.repeated:
            return Label.FAIL
        is_known = self.decided == len(self.turns) and not self.unchecked
        return Label.PASS if is_known and self.turns else Label.SKIPPED


def findings_of(turns: Sequence[Turn], checks: Mapping[_Key, TurnCheck | None]) -> SessionFindings:
    """Put a session together. Checks are by trace and span of the later turn; ``None`` is a failed one.

    The order of the turns does not matter, only their times.
    """
    ordered = in_order(turns)
    by_key = {(turn.trace_id, turn.span_id): turn for turn in ordered}
    place = {key: number for number, key in enumerate(by_key)}
    conflicts: list[TurnFault] = []
    corrections: list[TurnFault] = []
    repeated: list[TurnFault] = []
    for key, turn in by_key.items():
        check = checks.get(key)
        found = [
            (link, by_key[link.trace_id, link.span_id])
            for link in (check.links if check else ())
            if place.get((link.trace_id, link.span_id), len(place)) < place[key]
            and link.claim < len(turn.claims)
        ]
        for link, earlier in found:
            if link.is_conflict:
                fault = TurnFault(later=turn, claim=link.claim, earlier=earlier, quote=link.quote)
                (corrections if _corrects(turn, earlier, link) else conflicts).append(fault)
        repeated += _repeated(turn, ordered[: place[key]], found)
    return SessionFindings(
        turns=tuple(ordered),
        contradictions=tuple(conflicts),
        corrections=tuple(corrections),
        repeated=tuple(repeated),
        unchecked=sum(key in checks and checks[key] is None for key in by_key),
        usage=sum((check.usage for check in checks.values() if check), Usage()),
    )


def _corrects(turn: Turn, earlier: Turn, link: TurnLink) -> bool:
    is_supported = turn.claims[link.claim].label is VerdictLabel.SUPPORTED
    return is_supported and any(claim.is_wrong for claim in _quoted(earlier, link.quote))


def _repeated(
    turn: Turn, before: Sequence[Turn], links: Sequence[tuple[TurnLink, Turn]]
) -> Iterator[TurnFault]:
    """Yield each wrong claim that was wrong before, with the last turn that made it."""
    wrong = {_bare(claim.text): (one, claim) for one in before for claim in one.claims if claim.is_wrong}
    same = {link.claim: (link, earlier) for link, earlier in links if not link.is_conflict}
    for number, claim in enumerate(turn.claims):
        if claim.label is VerdictLabel.SUPPORTED:
            continue
        said = wrong.get(_bare(claim.text))
        link, earlier = same.get(number, (None, None))
        if said is not None:
            yield TurnFault(later=turn, claim=number, earlier=said[0], quote=said[1].text)
        elif link and earlier and any(one.is_wrong for one in _quoted(earlier, link.quote)):
            yield TurnFault(later=turn, claim=number, earlier=earlier, quote=link.quote)


def _quoted(turn: Turn, quote: str) -> list[TurnClaim]:
    """Return the claims of a turn in whose sentences a quote is."""
    start = turn.answer.find(quote)
    if start < 0:
        return []
    end = start + len(quote)
    return [
        claim
        for claim in turn.claims
        if claim.start is not None and claim.end is not None and claim.start < end and start < claim.end
    ]


def _bare(text: str) -> str:
    return _NOT_WORDS.sub(" ", text).strip().casefold()
