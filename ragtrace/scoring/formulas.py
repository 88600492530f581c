"""Scores as arithmetic over verdicts; the judge never computes them.

With S supported, C contradicted, N unsupported and U unjudged claims of n:

=============  ====================  ==================================================
reading        formula               answers
=============  ====================  ==================================================
strict         S / (n - U)           what share of the judged claims does the context support?
lenient        (S + N) / (n - U)     what share is at least not contradicted?
lower bound    S / n                 and if every unjudged claim were wrong?
coverage       (n - U) / n           how much of the answer was judged?
=============  ====================  ==================================================

Chunks are graded by relevance to the question: R relevant (they contain a part of what the answer needs), P
partly relevant (background), I irrelevant, U unjudged. If a yes or no is needed, relevant is yes and the rest
no, as in TREC's deep learning track.

=================  ==============================  ======================================================
reading            formula                         answers
=================  ==============================  ======================================================
relevant share     R / (R + P + I)                 what share of the chunks is of use?
serving share      (R + P) / (R + P + I)           what share is of use, or background to it?
mean relevance     (2 R + P) / (2 (R + P + I))     how relevant are the chunks on average?
average precision  sum(P@k for useful k) / useful  do the useful chunks come first? (order counts)
=================  ==============================  ======================================================

If the denominator of a reading is 0, the reading is ``None``, never 0 or 1. The only convention: if chunks
were judged and none is useful, the average precision is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.model import VerdictCounts


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


def contradicted_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context contradicts."""
    return _share(counts.contradicted, counts.judged)


def ungrounded_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged claims that the context contradicts or does not mention."""
    return _share(counts.contradicted + counts.unsupported, counts.judged)


def relevant_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged chunks that are relevant."""
    return _share(counts.relevant, counts.judged)


def serving_share(counts: VerdictCounts) -> float | None:
    """Return the share of judged statements or chunks that are relevant or partly relevant."""
    return _share(counts.relevant + counts.partly_relevant, counts.judged)


def mean_relevance(counts: VerdictCounts) -> float | None:
    """Return the mean relevance of judged chunks: relevant is 1, partly relevant 0.5, irrelevant 0."""
    return _share(2 * counts.relevant + counts.partly_relevant, 2 * counts.judged)


def average_precision(useful: Sequence[bool]) -> float | None:
    """Return the mean precision at the ranks of the useful items; 0 if none is, ``None`` without items."""
    if not useful:
        return None
    ranks = [rank for rank, is_useful in enumerate(useful, start=1) if is_useful]
    found = sum(hits / rank for hits, rank in enumerate(ranks, start=1))
    return found / len(ranks) if ranks else 0.0


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
