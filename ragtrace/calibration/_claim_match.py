"""Claims that people labeled, found again in what a judge made of the whole answer: by where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from ragtrace.model import Claim, Verdict, VerdictLabel


class ClaimMatch(StrEnum):
    """What the judge's own claims say of the place where a labeled one stands."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    """One of them is contradicted or unsupported."""
    UNJUDGED = "unjudged"
    NOT_EXTRACTED = "not extracted"
    """The judge made no claim of it."""

    @property
    def is_supported(self) -> bool | None:
        """Read it two-way; ``None`` where the judge said neither."""
        return {ClaimMatch.SUPPORTED: True, ClaimMatch.UNSUPPORTED: False}.get(self)


def find_claims(
    claims: Sequence[Claim], answer: str, verdicts: Sequence[Verdict]
) -> tuple[ClaimMatch | None, ...]:
    """Return what the verdicts say of each claim; ``None`` if it is not in the answer word for word."""
    return tuple(place and _found(place, verdicts) for place in _places(claims, answer))


def _places(claims: Sequence[Claim], answer: str) -> Iterator[tuple[int, int] | None]:
    """Yield where each claim stands; one that is said twice stands first where the one before it ends."""
    reached = 0
    for claim in claims:
        text = claim.text.strip()
        start = answer.find(text, reached)
        start = answer.find(text) if start < 0 else start
        if start < 0:
            yield None
            continue
        reached = start + len(text)
        yield start, reached


def _found(place: tuple[int, int], verdicts: Sequence[Verdict]) -> ClaimMatch:
    labels = {verdict.label for verdict in verdicts if _overlaps(verdict.claim, place)}
    if labels & {VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED}:
        return ClaimMatch.UNSUPPORTED
    if VerdictLabel.SUPPORTED in labels:
        return ClaimMatch.SUPPORTED
    return ClaimMatch.UNJUDGED if labels else ClaimMatch.NOT_EXTRACTED


def _overlaps(claim: Claim, place: tuple[int, int]) -> bool:
    start, end = place
    return claim.start is not None and claim.end is not None and claim.start < end and start < claim.end
