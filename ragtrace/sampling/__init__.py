"""Sampling: chooses the answers to judge, identically in the collector and in back-fill."""

from ragtrace.sampling.rules import (
    RULE_RATIO,
    RULE_SUSPICION,
    Choice,
    Rule,
    SamplingPlan,
    Scalar,
    SuspicionRate,
    TracePlan,
    ValueTest,
    keeps,
    position_of,
)
