"""The commands of the program: each is loaded only to run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final

import click


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command, without its code."""

    name: str
    help: str
    """Its line in ``ragtrace --help``."""
    address: str
    """``module:name`` of the command."""

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.address.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


_ENTRIES: Final = (
    CommandEntry(
        "demo",
        "See the whole pipeline on human-labeled traffic.",
        "ragtrace.cli.demo:demo",
    ),
    CommandEntry(
        "evaluate",
        "Judge the records of a JSON-lines file.",
        "ragtrace.cli.evaluate:evaluate",
    ),
    CommandEntry(
        "explain",
        "Show what is read from a trace, from where, and why.",
        "ragtrace.cli.explain:explain",
    ),
    CommandEntry(
        "backfill",
        "Judge the answers in stored traces.",
        "ragtrace.cli.backfill:backfill",
    ),
    CommandEntry(
        "rejudge",
        "Score kept verdicts again, or compare two judges.",
        "ragtrace.cli.rejudge:rejudge",
    ),
    CommandEntry(
        "report",
        "Measure production quality from judged answers.",
        "ragtrace.cli.report:report",
    ),
    CommandEntry(
        "calibrate",
        "Measure a judge against human labels.",
        "ragtrace.cli.calibrate:calibrate",
    ),
    CommandEntry(
        "metrics",
        "List the metrics.",
        "ragtrace.cli.metrics:metrics",
    ),
    CommandEntry(
        "doctor",
        "Check judge, endpoints, store, and an application's spans.",
        "ragtrace.cli.doctor:doctor",
    ),
    CommandEntry(
        "collector",
        "Receive OTLP, judge the answers in it, write the verdicts back.",
        "ragtrace_collector.cli.collector:collector",
    ),
    CommandEntry(
        "ui",
        "Show judged answers on a page: trends, lists, claims and evidence.",
        "ragtrace_collector.cli.ui:ui",
    ),
    CommandEntry(
        "tail",
        "Follow verdicts in the terminal.",
        "ragtrace_collector.cli.tail:tail",
    ),
    CommandEntry(
        "reviews",
        "Write what people said of verdicts as labels.",
        "ragtrace_collector.cli.reviews:reviews",
    ),
    CommandEntry(
        "token",
        "Make a token for the collector's receivers and pages.",
        "ragtrace_collector.cli.token:token",
    ),
    CommandEntry(
        "why",
        "Say why an answer has a score, or has none.",
        "ragtrace_collector.cli.why:why",
    ),
    CommandEntry(
        "ledger",
        "Count the answers a collector saw, by state.",
        "ragtrace_collector.cli.ledger:ledger",
    ),
    CommandEntry(
        "budget",
        "Show what judging has cost, and what is left.",
        "ragtrace_collector.cli.budget:budget",
    ),
    CommandEntry(
        "drift",
        "Check by labeled answers whether the judge has changed.",
        "ragtrace_collector.cli.drift:drift",
    ),
    CommandEntry(
        "outbox",
        "Show what back ends rejected, and send it again.",
        "ragtrace_collector.cli.outbox:outbox",
    ),
    CommandEntry(
        "rules",
        "Write alert rules for Prometheus or Grafana.",
        "ragtrace_collector.cli.rules:rules",
    ),
    CommandEntry(
        "kafka",
        "Check or create the topics that a collector reads from.",
        "ragtrace_collector.cli.kafka:kafka",
    ),
    CommandEntry(
        "backup",
        "Copy a collector's store while it runs.",
        "ragtrace_collector.cli.backup:backup",
    ),
)
COMMANDS: Final = {entry.name: entry for entry in _ENTRIES}
