"""Which answers are judged, and with what probability."""

from ragtrace_collector.sampling.follow_up import RULE_FOLLOW_UP, FollowUpPolicy, FollowUps, LowAnswer
from ragtrace_collector.sampling.rate_limit import Limits
from ragtrace_collector.sampling.sampler import Decision, EarlierDecision, Odds, Sampler
from ragtrace_collector.sampling.tenant_floor import Fairness
from ragtrace_collector.sampling.windows import WindowRow

__all__ = [
    "RULE_FOLLOW_UP",
    "Decision",
    "EarlierDecision",
    "Fairness",
    "FollowUpPolicy",
    "FollowUps",
    "Limits",
    "LowAnswer",
    "Odds",
    "Sampler",
    "WindowRow",
]
