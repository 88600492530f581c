"""Test support: assertions about answers, and conformance suites for plug-ins."""

from ragtrace.judge.scripted import Script, ScriptedJudge
from ragtrace.testing._conformance import check_embedder, check_judge, check_metric
from ragtrace.testing._gates import assert_faithful, assert_metrics
from ragtrace.testing._sinks import check_sink

__all__ = [
    "Script",
    "ScriptedJudge",
    "assert_faithful",
    "assert_metrics",
    "check_embedder",
    "check_judge",
    "check_metric",
    "check_sink",
]
