"""Matches labeled claims with the judge's own claims by their position in the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from ragtrace.model import Claim, Verdict, VerdictLabel


class ClaimMatch(StrEnum):
    """The judge's verdict at the position of a labeled claim."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    """One of the judge's claims there is contradicted or unsupported."""
    UNJUDGED = "unjudged"
    NOT_EXTRACTED = "not extracted"
    """The judge extracted no claim there."""

    @property
    def is_supported(self) -> bool | None:
        """Return the binary label; ``None`` if the judge gave neither."""
        return {ClaimMatch.SUPPORTED: True, ClaimMatch.UNSUPPORTED: False}.get(self)


def find_claims(
    claims: Sequence[Claim], answer: str, verdicts: Sequence[Verdict]
) -> tuple[ClaimMatch | None, ...]:
    """Return the match of each claim; ``None`` if the answer does not contain it verbatim."""
    return tuple(place and _found(place, verdicts) for place in _places(claims, answer))


def _places(claims: Sequence[Claim], answer: str) -> Iterator[tuple[int, int] | None]:
    """Yield the position of each claim; a repeated text is first searched after the previous claim."""
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
