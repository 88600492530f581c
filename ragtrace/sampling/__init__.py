"""Sampling: chooses the answers to judge, identically in the collector and in back-fill."""

from ragtrace.sampling._comparison import Scalar, ValueTest
from ragtrace.sampling._position import RULE_RATIO, keeps, position_of
from ragtrace.sampling.rules import RULE_SUSPICION, Choice, Rule, SamplingPlan, SuspicionRate, TracePlan
