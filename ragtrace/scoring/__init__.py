"""Scores are arithmetic over verdicts, never the judge's own number: ragtrace's and other tools' rules."""

from ragtrace.scoring.profiles import (
    PROFILES,
    Judged,
    ProfileScore,
    canonical,
    score,
    scored_metrics,
)
