"""Choose the verdicts on a carrier: each once, even if several metrics use it, with failing ones first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from ragtrace.model import ChunkVerdict, Claim, MetricOutcome, MetricResult, Verdict, VerdictLabel

MAX_CLAIM_EVENTS: Final = 90
MAX_CHUNK_EVENTS: Final = 32
_ORDER: Final = {
    VerdictLabel.CONTRADICTED: 0,
    VerdictLabel.UNSUPPORTED: 1,
    VerdictLabel.IRRELEVANT: 2,
    VerdictLabel.UNJUDGED: 3,
    VerdictLabel.PARTLY_RELEVANT: 4,
    VerdictLabel.SUPPORTED: 5,
    VerdictLabel.RELEVANT: 6,
}

_KINDS_ALIKE: Final = ("factual", "sentence")

VerdictT = TypeVar("VerdictT", Verdict, ChunkVerdict)


@dataclass(frozen=True, slots=True)
class CarrierVerdict(Generic[VerdictT]):
    """A verdict and the metrics that use it."""

    verdict: VerdictT
    metrics: tuple[str, ...]
    """Their names in attribute keys, in run order."""


@dataclass(frozen=True, slots=True)
class CarrierVerdicts:
    """The verdicts that fit on a carrier."""

    claims: tuple[CarrierVerdict[Verdict], ...]
    chunks: tuple[CarrierVerdict[ChunkVerdict], ...]

    @property
    def claims_of(self) -> Counter[str]:
        """Number of emitted claims per metric."""
        return Counter(name for shown in self.claims for name in shown.metrics)

    @property
    def chunks_of(self) -> Counter[str]:
        """Number of emitted chunks per metric."""
        return Counter(name for shown in self.chunks for name in shown.metrics)


def choose(outcomes: Sequence[tuple[str, MetricOutcome]], *, max_claims: int, room: int) -> CarrierVerdicts:
    """Choose the verdicts of several metrics to show in ``room`` events, at most ``max_claims`` on claims."""
    results = [(key, outcome) for key, outcome in outcomes if isinstance(outcome, MetricResult)]
    claims = _once([(key, verdict) for key, result in results for verdict in result.verdicts])
    claims = claims[: max(0, min(max_claims, MAX_CLAIM_EVENTS, room))]
    chunks = _once([(key, verdict) for key, result in results for verdict in result.chunk_verdicts])
    return CarrierVerdicts(tuple(claims), tuple(chunks[: max(0, min(MAX_CHUNK_EVENTS, room - len(claims)))]))


def _once(verdicts: Iterable[tuple[str, VerdictT]]) -> list[CarrierVerdict[VerdictT]]:
    """Merge equal verdicts: three metrics that use the same claim show it once."""
    first: dict[Hashable, VerdictT] = {}
    metrics: dict[Hashable, dict[str, None]] = {}
    for key, verdict in verdicts:
        mark = _mark(verdict)
        first.setdefault(mark, verdict)
        metrics.setdefault(mark, {})[key] = None
    shown = [CarrierVerdict(verdict, tuple(metrics[mark])) for mark, verdict in first.items()]
    return sorted(shown, key=lambda each: _ORDER[each.verdict.label])


def _mark(verdict: Verdict | ChunkVerdict) -> Hashable:
    """Return the identity of a verdict: a sentence with a single claim equals that claim."""
    if isinstance(verdict, ChunkVerdict):
        return verdict
    claim = verdict.claim
    if claim.kind not in _KINDS_ALIKE or claim.start is None:
        return verdict
    return replace(verdict, claim=Claim(index=0, text=claim.text, start=claim.start, end=claim.end))
