"""Which answers are judged, and with what probability."""

from ragtrace_collector.sampling._rate_limit import LIMIT, Limits, Place
from ragtrace_collector.sampling._tenant_floor import TenantFloor
from ragtrace_collector.sampling.follow_up import RULE_FOLLOW_UP, FollowUpPolicy, FollowUps, LowAnswer
from ragtrace_collector.sampling.sampler import Decision, EarlierDecision, Sampler, SamplingOdds
from ragtrace_collector.sampling.windows import WindowRow
