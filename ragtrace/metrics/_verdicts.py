"""Checks the verdicts of a judge's reply, and combines the verdicts of several replies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ragtrace.judge_forms import GivenVerdict, VerdictWord
from ragtrace.metrics.ask_items import ItemReplies
from ragtrace.model import DecidedBy, VerdictLabel

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
    support: float | None = None
    """Probability in [0, 1] that the chunks support the claim, if the judge gives one."""
    omitted: bool = False
    """The judge left out the verdict without abstaining, or gave an unusable one."""
    decided_by: DecidedBy | None = None
    """Who decided, if the judge is a cascade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVerdicts:
    """The verdicts on the claims of a record, by number."""

    rulings: Mapping[int, CheckedVerdict]
    rejected: int = 0
    """Number of verdicts with unknown ids."""
    canaries_passed: int = 0

    def without_contradicted(self) -> CheckedVerdicts:
        """Turn *contradicted* into *unsupported*, with the evidence."""
        return replace(self, rulings={number: _folded(ruling) for number, ruling in self.rulings.items()})

    def corrected_by(self, second: CheckedVerdicts) -> CheckedVerdicts:
        """Apply a second look, which changes a claim to supported only with a quote from the chunks."""
        found = {number: ruling for number, ruling in second.rulings.items() if _is_proven(ruling)}
        return CheckedVerdicts(
            rulings={**self.rulings, **found},
            rejected=self.rejected + second.rejected,
            canaries_passed=self.canaries_passed + second.canaries_passed,
        )


def _folded(ruling: CheckedVerdict) -> CheckedVerdict:
    if ruling.label is not VerdictLabel.CONTRADICTED:
        return ruling
    reason = f"{FOLDED}: {ruling.reason}" if ruling.reason else FOLDED
    return replace(ruling, label=VerdictLabel.UNSUPPORTED, reason=reason)


FOLDED: Final = "the judge says contradicted, which by its card it says too often"


def undecided(reason: str) -> CheckedVerdict:
    """Return a missing verdict with its reason."""
    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason)


def omitted(reason: str) -> CheckedVerdict:
    """Return a verdict that the judge left out without abstaining."""
    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason, omitted=True)


def checked_verdicts(
    replies: ItemReplies[GivenVerdict], *, shown: Collection[int], find_quote: FindQuote
) -> Mapping[int, CheckedVerdict]:
    """Return the verdicts about some chunks, by claim, with the evidence that was found."""
    given_up = {
        number: omitted(reason) if number in replies.omitted else undecided(reason)
        for number, reason in replies.given_up.items()
    }
    found = {number: _ruling(given, shown, find_quote) for number, given in replies.found.items()}
    checked = {**given_up, **found}
    named = {
        number: replace(ruling, decided_by=replies.decided_by[number])
        if number in replies.decided_by
        else ruling
        for number, ruling in checked.items()
    }
    support = replies.support
    return {n: _with_support(ruling, support[n]) if n in support else ruling for n, ruling in named.items()}


def _with_support(ruling: CheckedVerdict, support: float) -> CheckedVerdict:
    """Add the probability of support; a label is right with it, or with the rest, if who gave it decided."""
    if support == ruling.support:
        return ruling
    if ruling.decided_by is DecidedBy.JUDGE:
        return replace(ruling, support=support)
    by_label = {VerdictLabel.SUPPORTED: support, VerdictLabel.UNSUPPORTED: 1 - support}
    return replace(ruling, support=support, confidence=by_label.get(ruling.label))


def combine(rulings: Sequence[CheckedVerdict]) -> CheckedVerdict:
    """Combine the verdicts on one claim from several packs of chunks.

    One supporting pack is enough. ``unsupported`` needs all packs, and has the lowest confidence of them.
    Evidence with a quote takes precedence, then the higher confidence. The probability of support is the
    highest of all packs.
    """
    chosen = _chosen(rulings)
    support = max((ruling.support for ruling in rulings if ruling.support is not None), default=None)
    return chosen if support is None else _with_support(chosen, support)


def _chosen(rulings: Sequence[CheckedVerdict]) -> CheckedVerdict:
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
