"""Pairs the outcomes of two evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ragtrace.model import MetricOutcome


def pairs_of(
    first: Sequence[MetricOutcome], second: Sequence[MetricOutcome]
) -> list[tuple[MetricOutcome, MetricOutcome]]:
    """Pair outcomes of the same metric and profile; of any profile if a metric ran once on each side."""
    named = {(each.metric, each.profile): each for each in second}
    once = Counter(each.metric for each in first), Counter(each.metric for each in second)
    alone = {each.metric: each for each in second if once[0][each.metric] == once[1][each.metric] == 1}
    found = [(each, named.get((each.metric, each.profile)) or alone.get(each.metric)) for each in first]
    return [(one, other) for one, other in found if other is not None]
