"""The collector's commands: ``ragtrace`` finds them by the entry point ``ragtrace.commands``."""

from ragtrace.cli.command_table import CommandEntry

COMMANDS = (
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
        "Say whether the judge has changed, by labeled answers.",
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
        "plan",
        "Say what traffic takes: processes, disk and money.",
        "ragtrace_collector.cli.plan:plan",
    ),
    CommandEntry(
        "backup",
        "Copy a collector's store while it runs.",
        "ragtrace_collector.cli.backup:backup",
    ),
)
