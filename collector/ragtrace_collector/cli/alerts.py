"""``ragtrace alerts``: which objectives are broken, and whether notices arrive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import EXISTING_FILE, JsonOption
from ragtrace.cli.render import many, print_json, print_line, talk
from ragtrace.cli.settings import command, group, option, takes
from ragtrace.errors import InputError

if TYPE_CHECKING:
    from ragtrace_collector.alerts.watch import SloState, SloWatch
    from ragtrace_collector.config import AlertSinkConfig, CollectorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsOptions:
    """Whose objectives, and whom to tell."""

    config: Path = option(
        "--config",
        type=EXISTING_FILE,
        required=True,
        metavar="FILE",
        help="The collector's configuration: its sections `slo` and `alerts`.",
    )
    to: str | None = option("--to", metavar="NAME", help="With test: only this one of `alerts.to`.")
    json: JsonOption = group(JsonOption)


@command()
@click.argument("action", type=click.Choice(["list", "test"]))
@takes(options=AlertsOptions)
def alerts(action: Literal["list", "test"], options: AlertsOptions) -> None:
    """Show each objective with the judged answers behind it; or send a test notice to all of `alerts.to`.

    The collector may run meanwhile. Exit code 1 if an objective is broken, or a test notice was not
    accepted.

    \b
    Examples:
      ragtrace alerts list --config collector.yaml
      ragtrace alerts test --config collector.yaml
      ragtrace alerts test --config collector.yaml --to ops
    """
    with needs_extra("collector"):
        from ragtrace_collector.config import load_config

    config = load_config(options.config)
    is_fine = _list(config, options) if action == "list" else _test(config, options)
    click.get_current_context().exit(0 if is_fine else 1)


def _list(config: CollectorConfig, options: AlertsOptions) -> bool:
    from ragtrace_collector.alerts.watch import SloState, SloWatch
    from ragtrace_collector.store.maintenance import watch_states

    known = {name: SloState.of(text) for name, text in watch_states(config.store.file).items()}
    if not config.slo:
        talk("`slo` names no objective")
    watches = [SloWatch.of(slo, config.sample) for slo in config.slo]
    states = {watch.slo.name: _current(watch, known) for watch in watches}
    for watch in watches:
        _print_state(watch, states[watch.slo.name], as_json=options.json.wanted)
    return not any(state and state.alarm for state in states.values())


def _current(watch: SloWatch, known: Mapping[str, SloState]) -> SloState | None:
    """Return the state of an objective, unless it is of another claim under the same name."""
    state = known.get(watch.slo.name)
    return state if state is not None and state.claim == watch.claim else None


def _print_state(watch: SloWatch, state: SloState | None, *, as_json: bool) -> None:
    from ragtrace_collector.alerts.notices import moment

    slo, alarm = watch.slo, state.alarm if state else None
    judged, failing = (state.judged, state.failing) if state else (0, 0)
    if as_json:
        print_json(
            {
                "slo": slo.name,
                "metric": slo.metric,
                "objective": slo.objective,
                "state": "broken" if alarm else "unbroken" if judged else "no data",
                "judged_answers": judged,
                "failing_answers": failing,
                "since": moment(alarm.since_ns) if alarm else None,
                "alert_id": alarm.id if alarm else None,
            }
        )
        return
    counted = f"{failing:,} of {many(judged, 'judged answer')} failed {slo.metric} since it is watched"
    if alarm:
        print_line(
            f"{slo.name}: broken since {moment(alarm.since_ns)}:"
            f" {alarm.failing} of {alarm.judged} judged answers failed then; {counted}"
        )
    elif judged:
        print_line(f"{slo.name}: no evidence against it; {counted}")
    else:
        print_line(f"{slo.name}: no answer was judged yet, so nothing is known")


def _test(config: CollectorConfig, options: AlertsOptions) -> bool:
    import asyncio

    sinks = [sink for sink in config.alerts.to if options.to in (None, sink.name, sink.key)]
    if not sinks:
        there = ", ".join(sink.key.partition(":")[2] for sink in config.alerts.to)
        which = f"has no {options.to!r}: there is {there}" if there else "names nobody"
        raise InputError(f"{options.config}: `alerts.to` {which}")
    results = [asyncio.run(_sent(config, sink)) for sink in sinks]
    for name, failure in results:
        if options.json.wanted:
            print_json({"to": name, "accepted": not failure, "error": failure or None})
        else:
            print_line(failure or f"{name} accepted the test notice")
    return not any(failure for _, failure in results)


async def _sent(config: CollectorConfig, sink: AlertSinkConfig) -> tuple[str, str]:
    """Send a test notice; return whom to, and what was wrong."""
    from ragtrace.clock import SystemClock
    from ragtrace.errors import SendError
    from ragtrace_collector.alerts.notices import trial_notice
    from ragtrace_collector.alerts.sinks import NoticeSink

    clock = SystemClock()
    opened = NoticeSink(config=sink, clock=clock)
    try:
        await opened.send(trial_notice(config.slo[0], at_ns=clock.now_ns()))
    except SendError as exc:
        return opened.name, str(exc)
    finally:
        await opened.aclose()
    return opened.name, ""
