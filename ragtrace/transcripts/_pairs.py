"""Pairs the outcomes of two evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ragtrace.model import MetricOutcome


def pairs_of(
    first: Sequence[MetricOutcome], second: Sequence[MetricOutcome]
) -> list[tuple[MetricOutcome, MetricOutcome]]:
    """Pair outcomes of the same metric and profile; of any profile if a metric ran once on each side."""
    named = {(outcome.metric, outcome.profile): outcome for outcome in second}
    once = Counter(outcome.metric for outcome in first), Counter(outcome.metric for outcome in second)
    alone = {
        outcome.metric: outcome
        for outcome in second
        if once[0][outcome.metric] == once[1][outcome.metric] == 1
    }
    found = [
        (outcome, named.get((outcome.metric, outcome.profile)) or alone.get(outcome.metric))
        for outcome in first
    ]
    return [(one, other) for one, other in found if other is not None]
