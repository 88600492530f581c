"""Scores are arithmetic over verdicts, done here and never by the judge.

With S supported, C contradicted, N not mentioned and U unjudged claims of n:

=============  ====================  ==================================================
reading        formula               answers
=============  ====================  ==================================================
strict         S / (n - U)           what share of the judged claims stands on the context?
lenient        (S + N) / (n - U)     what share is at least not contradicted?
lower bound    S / n                 and if every unjudged claim were wrong?
coverage       (n - U) / n           how much of the answer was judged?
=============  ====================  ==================================================

A reading whose denominator is 0 does not exist: it is ``None``, never 0 or 1.
"""

from __future__ import annotations

from ragtrace.model import VerdictCounts

__all__ = ["coverage", "lenient_faithfulness", "lower_bound", "strict_faithfulness"]


def strict_faithfulness(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context supports."""
    return _share(counts.supported, counts.judged)


def lenient_faithfulness(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context does not contradict."""
    return _share(counts.supported + counts.unsupported, counts.judged)


def lower_bound(counts: VerdictCounts) -> float | None:
    """Return the share of all claims that are known to be supported."""
    return _share(counts.supported, counts.total)


def coverage(counts: VerdictCounts) -> float | None:
    """Return the share of all claims that have a verdict."""
    return _share(counts.judged, counts.total)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
