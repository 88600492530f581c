"""``ragtrace kafka``: the topics that a collector reads from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import EXISTING_FILE, JsonOption
from ragtrace.cli.render import many, one_line, print_json
from ragtrace.cli.settings import command, group, option, takes
from ragtrace.cli.times import duration
from ragtrace.errors import InputError

if TYPE_CHECKING:
    from ragtrace_collector.kafka.topics import TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Whose topics, and how they are to be."""

    config: Path = option(
        "--config",
        type=EXISTING_FILE,
        required=True,
        metavar="FILE",
        help="The collector's configuration: its section `receive.kafka`.",
    )
    apply: bool = option(
        "--apply/--check",
        default=False,
        help="Create what is missing and set what is wrong, or only say it. [default: --check]",
    )
    partitions: int = option(
        "--partitions",
        type=click.IntRange(min=1),
        metavar="N",
        default=1,
        show_default=True,
        help="At least so many for each topic of spans: one for each collector of the group.",
    )
    replication: int | None = option(
        "--replication",
        type=click.IntRange(min=1),
        metavar="N",
        help="Copies of a topic that is created. [default: as the brokers say]",
    )
    retention: timedelta = option(
        "--retention",
        parse=duration,
        default="7d",
        show_default=True,
        metavar="DURATION",
        help="At least so long messages stay: longer than a collector may be away.",
    )
    json: JsonOption = group(JsonOption)


@command()
@click.argument("action", type=click.Choice(["topics"]))
@takes(options=KafkaOptions)
def kafka(action: str, options: KafkaOptions) -> None:
    """Check or create the topics that a collector needs: spans and dead letters.

    They must delete what is old. The number of partitions of a topic that exists is only checked. Exits with
    1 if something is wrong.

    \b
    Examples:
      ragtrace kafka topics --config collector.yaml
      ragtrace kafka topics --config collector.yaml --apply --partitions 6
    """
    with needs_extra("collector"):
        from ragtrace_collector.config import load_config
    config = load_config(options.config)
    section = config.receive.kafka
    if section is None:
        raise InputError(f"{options.config}: has no `receive.kafka`: see docs/kafka.md")
    with needs_extra("kafka"):
        from ragtrace_collector.kafka.topics import TopicAdmin
        from ragtrace_collector.receive.kafka_topics import received_topics

    wanted = received_topics(section, partitions=options.partitions, retention=options.retention)
    admin = TopicAdmin(section.client_settings(), wanted)
    states = admin.apply(replication=options.replication) if options.apply else admin.states()
    _show(states, as_json=options.json.wanted)
    click.get_current_context().exit(1 if any(state.faults for state in states) else 0)


def _show(states: Sequence[TopicState], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topics": [
                    {
                        "topic": state.name,
                        "purpose": state.purpose,
                        "partitions": state.partitions,
                        "faults": list(state.faults),
                    }
                    for state in states
                ]
            }
        )
        return
    for state in states:
        there = f", {many(state.partitions, 'partition')}" if state.exists else ""
        click.echo(f"{one_line(state.name)} ({state.purpose}{there}): {'; '.join(state.faults) or 'fine'}")
