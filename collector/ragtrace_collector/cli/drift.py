"""``ragtrace drift``: whether the judge is still the one that earlier scores came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.options import ConfigOptions, JsonOption, command, group, takes
from ragtrace.cli.render import many, one_line, print_json, print_line, talk, utc
from ragtrace.errors import ConfigError
from ragtrace.process import SystemClock

if TYPE_CHECKING:
    from ragtrace.drift import AnchorFlip, AnchorRun, SeenModel
    from ragtrace_collector.config import CollectorConfig

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOptions:
    """Whose judge is checked."""

    config: ConfigOptions = group(ConfigOptions)
    json: JsonOption = group(JsonOption)


@command()
@click.argument("action", type=click.Choice(["status", "run", "accept"]))
@takes(options=DriftOptions)
def drift(action: str, options: DriftOptions) -> None:
    """Check whether the judge has changed, by judging labeled answers (anchors) again.

    `status` shows the runs of the collector, `run` makes one now, and `accept` accepts the
    judge as it is: the next run is a new baseline. The collector may run meanwhile. `status` and `run` exit
    with 1 while the judge has drifted.

    \b
    Examples:
      ragtrace drift status --config collector.yaml
      ragtrace drift run --config collector.yaml --json
    """
    from ragtrace.process import wait_for

    if options.config.path is None:
        raise click.UsageError("--config FILE is missing: it names the judge, the anchors and the store")
    only = ("judge", "evaluate", "drift", "budget", "store")
    config = options.config.read(only=only, needs_secrets=action != "status")
    if action == "accept":
        wait_for(_accept(config))
        talk("the next complete run is the new baseline")
        return
    if action == "run":
        wait_for(_run(config))
    shown = _read(config)
    if options.json.wanted:
        print_json(shown.as_json())
    else:
        for line in shown.lines():
            print_line(line)
    if shown.is_drifted:
        click.get_current_context().exit(1)


async def _run(config: CollectorConfig) -> None:
    from ragtrace_collector.drift import DriftCheck
    from ragtrace_collector.store.budget import BudgetRows, DriftRuns
    from ragtrace_collector.store.open import cipher_of, database_of
    from ragtrace_collector.store.store import open_tables

    if config.drift.anchors is None:
        raise ConfigError("`drift.anchors` is not set: name a file of labeled answers, or write `builtin`")
    async with open_tables(database_of(config.store), cipher_of(config.store)) as tables:
        check = DriftCheck(
            config=config,
            store=DriftRuns(tables),
            spend_ledger=BudgetRows(tables),
            clock=SystemClock(),
        )
        await check.run()


async def _accept(config: CollectorConfig) -> None:
    from ragtrace_collector.store.budget import DriftRuns
    from ragtrace_collector.store.open import cipher_of, database_of
    from ragtrace_collector.store.store import open_tables

    async with open_tables(database_of(config.store), cipher_of(config.store)) as tables:
        await DriftRuns(tables).begin_baseline()


def _read(config: CollectorConfig) -> _Shown:
    from ragtrace.drift import DRIFT_FROM
    from ragtrace_collector.store.budget import read_models, read_runs
    from ragtrace_collector.store.open import database_of

    with database_of(config.store).reading() as db:
        return _Shown(runs=read_runs(db), models=read_models(db), drifted_from=DRIFT_FROM)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What there is to tell. It names anchors by id, and holds no content."""

    runs: Sequence[AnchorRun]
    models: Sequence[SeenModel]
    drifted_from: float

    @property
    def last(self) -> AnchorRun | None:
        """The last complete run."""
        return next((run for run in reversed(self.runs) if run.is_complete), None)

    @property
    def is_drifted(self) -> bool:
        return self.last is not None and self.last.result == "drifted"

    @property
    def earlier(self) -> Sequence[AnchorRun]:
        """The complete runs that the last one is compared with."""
        from ragtrace_collector.drift import series_of

        return series_of(self.runs, self.last) if self.last else ()

    @property
    def flips(self) -> Sequence[AnchorFlip]:
        from ragtrace.drift import flips

        return flips(self.earlier, self.last) if self.last and self.earlier else ()

    def as_json(self) -> dict[str, object]:
        return {
            "drifted": self.is_drifted if self.last else None,
            "runs": [json.loads(run.as_json()) for run in self.runs],
            "drifted_from": self.drifted_from,
            "flips": [asdict(flip) for flip in self.flips],
            "models": [asdict(model) for model in self.models],
        }

    def lines(self) -> Iterator[str]:
        if not self.runs:
            yield "no run yet: `ragtrace drift run` makes the first one, which is the baseline"
        for run in self.runs[-_SHOWN:]:
            yield _run_line(run)
        if self.last and self.earlier:
            what = "DRIFT: the judge has changed" if self.is_drifted else "no drift"
            yield f"{what} (evidence {self.last.evidence:.3g}, drift from {self.drifted_from:g})"
        if self.flips and self.last:
            told = f"{len(self.flips)} of {self.last.judged} anchors"
            yield f"judged differently than in the first runs: {told}"
        for flip in self.flips[:_SHOWN]:
            yield f"  {one_line(flip.anchor)}  {flip.metric}  {flip.before:.2f} -> {flip.now:.2f}"
        if len(self.flips) > _SHOWN:
            yield f"  and {len(self.flips) - _SHOWN} more: --json has all"
        for model in self.models:
            name = f"{model.answered} {model.fingerprint}".strip()
            yield f"{model.requested} answered by {one_line(name)} since {utc(model.first_ns)}"


def _run_line(run: AnchorRun) -> str:
    from ragtrace.stats import wilson_interval

    agreed, labeled = run.agreement()
    parts = [f"{run.judged} of {many(run.anchors, 'anchor')} judged"]
    if labeled:
        low, high = wilson_interval(agreed, labeled)
        parts.append(f"{agreed} of {labeled} as labeled ({low:.0%} to {high:.0%})")
    skipped = run.anchors - run.judged - run.failed - run.over_budget
    left = ((skipped, "without a score"), (run.failed, "failed"), (run.over_budget, "over budget"))
    parts += [f"{number} {what}" for number, what in left if number]
    return f"{utc(run.began_ns)}  {run.result:<8}  {', '.join(parts)}"
