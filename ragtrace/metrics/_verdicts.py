"""Checks the verdicts of a judge's reply, and combines the verdicts of several replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ragtrace.judge_forms import GivenVerdict, VerdictWord, VerifyReply
from ragtrace.model import VerdictLabel

FindQuote: TypeAlias = Callable[[int, str], str | None]
"""Looks up a quote in the chunk with this number; returns the chunk's own text."""

_LABELS: Mapping[VerdictWord, VerdictLabel] = {
    "supported": VerdictLabel.SUPPORTED,
    "contradicted": VerdictLabel.CONTRADICTED,
    "not_mentioned": VerdictLabel.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVerdict:
    """The checked verdict of one reply on one claim."""

    label: VerdictLabel
    reason: str | None = None
    chunks: tuple[int, ...] = ()
    """Numbers of shown chunks, the one with the quote first."""
    quote: str | None = None
    """Verbatim text of the first chunk."""
    confidence: float | None = None
    """Probability in [0, 1] that the label is right, if the judge gives one."""
    omitted: bool = False
    """The judge left out the verdict without abstaining, or gave an unusable one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVerdicts:
    """The verdicts on the claims of a record, by number."""

    rulings: Mapping[int, CheckedVerdict]
    rejected: int = 0
    """Number of verdicts with unknown ids."""
    canaries_passed: int = 0
    canaries_silent: int = 0

    def corrected_by(self, second: CheckedVerdicts) -> CheckedVerdicts:
        """Apply a second look, which changes a claim to supported only with a quote from the chunks."""
        found = {number: ruling for number, ruling in second.rulings.items() if _is_proven(ruling)}
        return CheckedVerdicts(
            rulings={**self.rulings, **found},
            rejected=self.rejected + second.rejected,
            canaries_passed=self.canaries_passed + second.canaries_passed,
            canaries_silent=self.canaries_silent + second.canaries_silent,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedReply:
    """A reply of the judge, sorted by claim."""

    rulings: Mapping[int, CheckedVerdict]
    unanswered: tuple[int, ...]
    """Requested ids that are missing or repeated."""
    rejected: int
    """Number of verdicts with unknown ids."""
    canaries_passed: int = 0
    canaries_silent: int = 0

    def joined(self, other: CheckedReply) -> CheckedReply:
        """Add another reply, about other claims or the unanswered ones."""
        rulings = {**self.rulings, **other.rulings}
        unanswered = dict.fromkeys((*self.unanswered, *other.unanswered))
        return CheckedReply(
            rulings=rulings,
            unanswered=tuple(number for number in unanswered if number not in rulings),
            rejected=self.rejected + other.rejected,
            canaries_passed=self.canaries_passed + other.canaries_passed,
            canaries_silent=self.canaries_silent + other.canaries_silent,
        )

    def without_unanswered(self, reason: str) -> CheckedReply:
        """Mark the unanswered claims as unjudged for this reason."""
        given_up = dict.fromkeys(self.unanswered, omitted(reason))
        return replace(self, rulings={**self.rulings, **given_up}, unanswered=())


def undecided(reason: str) -> CheckedVerdict:
    """Return a missing verdict with its reason."""
    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason)


def omitted(reason: str) -> CheckedVerdict:
    """Return a verdict that the judge left out without abstaining."""
    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason, omitted=True)


def check_reply(
    reply: VerifyReply,
    *,
    asked: Collection[int],
    canary_claims: Collection[int] = (),
    abstained: Mapping[int, str],
    shown: Collection[int],
    find_quote: FindQuote,
) -> CheckedReply:
    """Keep verdicts with a requested id that came exactly once, with the evidence that was found.

    ``abstained`` has the reasons for ids that the judge declined to decide: they are unjudged. Verdicts on
    ``canary_claims`` are ignored.
    """
    times = Counter(given.id for given in reply.verdicts)
    rulings = {
        given.id: _ruling(given, shown, find_quote)
        for given in reply.verdicts
        if given.id in asked and times[given.id] == 1
    }
    rulings |= {number: undecided(reason) for number, reason in abstained.items() if number in asked}
    return CheckedReply(
        rulings=rulings,
        unanswered=tuple(number for number in asked if number not in rulings),
        rejected=sum(
            count for number, count in times.items() if number not in asked and number not in canary_claims
        ),
    )


def combine(rulings: Sequence[CheckedVerdict]) -> CheckedVerdict:
    """Combine the verdicts on one claim from several packs of chunks.

    One supporting pack is enough. ``unsupported`` needs all packs, and has the lowest confidence of them.
    Evidence with a quote takes precedence, then the higher confidence.
    """
    for label in (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED, VerdictLabel.UNJUDGED):
        alike = [ruling for ruling in rulings if ruling.label is label]
        if alike:
            return max(
                alike, key=lambda ruling: (ruling.quote is not None, ruling.omitted, _confidence(ruling))
            )
    return min(rulings, key=_confidence, default=undecided("no chunk with text was shown"))


def _confidence(ruling: CheckedVerdict) -> float:
    return ruling.confidence or 0.0


def _is_proven(ruling: CheckedVerdict) -> bool:
    return ruling.label is VerdictLabel.SUPPORTED and ruling.quote is not None


def _ruling(given: GivenVerdict, shown: Collection[int], find_quote: FindQuote) -> CheckedVerdict:
    reason = given.reason.strip() or None
    if given.label == "not_mentioned":
        return CheckedVerdict(label=VerdictLabel.UNSUPPORTED, reason=reason)
    cited = tuple(number for number in dict.fromkeys(given.chunks) if number in shown)
    holder, quote = _first_holding(given.quote, cited, find_quote)
    return CheckedVerdict(
        label=_LABELS[given.label],
        reason=reason,
        chunks=tuple(sorted(cited, key=lambda number: number != holder)),
        quote=quote,
    )


def _first_holding(quote: str, cited: Sequence[int], find_quote: FindQuote) -> tuple[int | None, str | None]:
    for number in cited:
        if found := find_quote(number, quote):
            return number, found
    return None, None
