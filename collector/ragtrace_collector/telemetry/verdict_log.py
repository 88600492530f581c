"""A line of JSON for each judged answer, on request: for log pipelines that read the process's output."""

from __future__ import annotations

import logging

from ragtrace.answers.summary import AnswerSummary, facts_of, metrics_of
from ragtrace_collector.telemetry.logs import JsonLines, event

_verdicts = logging.getLogger("ragtrace.verdicts")


def log_verdicts() -> None:
    """Send every verdict to stderr in JSON, whatever the level and format of the other lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    _verdicts.handlers, _verdicts.propagate = [handler], False
    _verdicts.setLevel(logging.INFO)


def log_verdict(answer: AnswerSummary) -> None:
    """Write the line of an answer. It has no content."""
    facts = {name: value for name, value in facts_of(answer).items() if value is not None and value != ""}
    if answer.supersedes:
        facts["supersedes"] = answer.supersedes
    told = event("answer_judged", **facts, metrics=metrics_of(answer))
    _verdicts.info("answer judged: %s", answer.label.value, extra=told)
