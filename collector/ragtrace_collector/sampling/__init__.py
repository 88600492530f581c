"""Which answers are judged, and with what probability."""

from ragtrace_collector.sampling.follow_up import RULE_FOLLOW_UP, FollowUpPolicy, FollowUps, LowAnswer
from ragtrace_collector.sampling.sampler import (
    LIMIT,
    Decision,
    EarlierDecision,
    Limits,
    Place,
    Sampler,
    SamplingOdds,
    TenantFloor,
)
from ragtrace_collector.sampling.windows import WindowRow
