"""Scores are arithmetic over verdicts, never the judge's own number: ragtrace's and other tools' rules."""

from ragtrace.scoring.formulas import (
    PassRule,
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
from ragtrace.scoring.profiles import (
    ALIASES,
    PROFILES,
    Judged,
    ProfileScore,
    canonical,
    score,
    scored_metrics,
)
