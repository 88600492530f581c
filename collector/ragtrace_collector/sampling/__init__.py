"""Which answers are judged, and with what probability."""

from ragtrace_collector.sampling.follow_up import RULE_NEIGHBOUR, LowAnswer, NeighbourPolicy, Neighbours
from ragtrace_collector.sampling.rate_limit import Limits
from ragtrace_collector.sampling.sampler import Decision, Odds, Sampler, Standing
from ragtrace_collector.sampling.tenant_floor import Fairness
from ragtrace_collector.sampling.windows import WindowRow

__all__ = [
    "RULE_NEIGHBOUR",
    "Decision",
    "Fairness",
    "Limits",
    "LowAnswer",
    "NeighbourPolicy",
    "Neighbours",
    "Odds",
    "Sampler",
    "Standing",
    "WindowRow",
]
