"""Scores are arithmetic over verdicts, never the judge's own number: ragtrace's and other tools' rules."""

from ragtrace.scoring._inputs import Judged
from ragtrace.scoring.formulas import (
    average_precision,
    contradicted_share,
    coverage,
    lenient_faithfulness,
    lower_bound,
    mean_relevance,
    relevant_share,
    serving_share,
    strict_faithfulness,
    ungrounded_share,
)
from ragtrace.scoring.pass_rule import PassRule
from ragtrace.scoring.profiles import ALIASES, PROFILES, ProfileScore, canonical, score, scored_metrics
