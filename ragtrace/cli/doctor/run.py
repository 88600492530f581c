"""One run of `ragtrace doctor`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ragtrace.cli.doctor.application import AppRun, run_app
from ragtrace.cli.doctor.capture_checks import (
    calls_json,
    captured_traces,
    check_capture,
    check_run,
    check_trace,
)
from ragtrace.cli.doctor.checks import Check, check_endpoint, check_store, check_versions
from ragtrace.cli.doctor.command import ApplicationOptions, TargetOptions
from ragtrace.cli.doctor.model_checks import (
    CardSettings,
    check_card,
    check_embedder,
    check_judge,
    check_likelihoods,
)
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json
from ragtrace.errors import ConfigError
from ragtrace.judge import uncached
from ragtrace.judge.spec import JudgeSpec
from ragtrace.metrics.verify_settings import VerifySettings
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.http.tls import ClientTls
    from ragtrace_collector.config import CollectorConfig, StoreConfig


_DEFAULT_ENDPOINT = "http://localhost:4317"
_TIMEOUT_S = 5.0
_SHOWN_TRACES = 20
_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def check_application(application: ApplicationOptions, *, as_json: bool) -> bool:
    """Run an application, print what was captured, and say whether anything of it can be judged.

    Raises:
        ConfigError: it cannot be started.
    """
    assert application.app is not None
    run = run_app(application.app, for_s=application.for_s, stdout=sys.stderr if as_json else None)
    judged = _look_at(application.app, run, as_json=as_json, show_content=application.show_content)
    return asyncio.run(judged) > 0


def check_targets(targets: TargetOptions, *, as_json: bool) -> bool:
    """Print each check as it is done, and say whether none failed."""
    plan = _Plan.of(targets)
    return asyncio.run(_examine(plan, targets.config_path, as_json=as_json)) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """How an endpoint is reached."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ClientTls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be looked at."""

    judge: JudgeSpec
    judge_named: bool
    """Whether an option names the judge."""
    cards: CardSettings
    embedder: JudgeSpec | None
    embedder_named: bool
    """Whether somebody named the embedder: else its absence is no failure."""
    verify_of: Callable[[JudgeIdentity], VerifySettings] = lambda _judge: VerifySettings()
    """How a judge is asked for verdicts."""
    timeout_s: float
    """For each thing that a model is asked."""
    endpoints: Mapping[str, _Reach]
    must_answer: bool = True
    """Whether somebody named the endpoints: else their absence is no failure."""
    store: StoreConfig | None = None
    secrets: frozenset[str] = frozenset()
    """Secrets that must not be printed, even if a server repeats them."""

    @classmethod
    def of(cls, targets: TargetOptions) -> _Plan:
        """Plan from options alone."""
        judge, endpoints = targets.judge.judge_spec(), targets.endpoints
        return cls(
            judge=judge,
            judge_named=targets.judge.is_given,
            cards=CardSettings(files=targets.cards.files, are_required=targets.cards.are_required),
            embedder=targets.embedder.embedder_spec(judge),
            embedder_named=targets.embedder.spec is not None,
            timeout_s=targets.timeout_s,
            endpoints={endpoint: _Reach() for endpoint in endpoints or [_DEFAULT_ENDPOINT]},
            must_answer=bool(endpoints),
            secrets=_secrets(*judge.secrets),
        )

    def with_config(self, path: Path) -> _Plan:
        """Add what a collector configuration names; options win over its judge.

        Raises:
            ConfigError: the configuration is wrong.
        """
        with needs_extra("collector"):
            from ragtrace_collector.config import load_config
            from ragtrace_collector.judge.spec import evaluator_spec_of

        config = load_config(path)
        evaluator = evaluator_spec_of(config)
        named = {
            export.endpoint: _Reach(
                headers={name: value.get_secret_value() for name, value in export.headers.items()},
                tls=export.tls.opened() if export.tls else None,
            )
            for export in config.export
        }
        kept = self.embedder_named or (self.judge_named and evaluator.embedder is None)
        return replace(
            self,
            judge=self.judge if self.judge_named else evaluator.judge,
            cards=CardSettings(
                files=(*evaluator.cards, *self.cards.files),
                are_required=evaluator.require_card or self.cards.are_required,
            ),
            embedder=self.embedder if kept else evaluator.embedder,
            embedder_named=self.embedder_named or evaluator.embedder is not None,
            verify_of=lambda judge: evaluator.limits(judge).verify,
            endpoints={**named, **(self.endpoints if self.must_answer else {})},
            must_answer=True,
            store=config.store,
            secrets=self.secrets | _secrets(*_secrets_in(config)),
        )


def _secrets_in(config: CollectorConfig) -> Iterator[str]:
    from ragtrace_collector.judge.spec import cheaper_spec_of, evaluator_spec_of

    evaluator, cheaper = evaluator_spec_of(config), cheaper_spec_of(config)
    for judge in (evaluator.judge, evaluator.second, evaluator.embedder, cheaper and cheaper.judge):
        yield from judge.secrets if judge else ()
    for export in config.export:
        yield from (value.get_secret_value() for value in export.headers.values())


async def _look_at(command: str, run: AppRun, *, as_json: bool, show_content: bool) -> int:
    """Print what was captured of an application, and return how many RAG calls of it will be judged."""
    console = None if as_json else open_console()
    for check in (check_run(command, run), *check_capture(run)):
        _show(console, check)
    traces = await captured_traces(run)
    for number, captured in enumerate(traces):
        if console is None:
            calls = calls_json(captured, show_content=show_content)
            print_json({**asdict(check_trace(captured, show_content=show_content)), "calls": calls})
        elif number < _SHOWN_TRACES:
            _print(console, check_trace(captured, show_content=show_content))
    judged, found = sum(each.judged for each in traces), sum(len(each.calls) for each in traces)
    _show(console, _summary(judged, found, traces=len(traces)))
    return judged


def _summary(judged: int, found: int, *, traces: int) -> Check:
    hidden = traces - _SHOWN_TRACES
    advice = f"{many(hidden, 'other trace')} not shown: --json shows all" if hidden > 0 else None
    told = f"{many(traces, 'trace')}, {many(found, 'RAG call')}, of which {judged} will be judged"
    return Check(name="captured", status="ok" if judged else "fail", found=told, advice=advice)


def _show(console: Console | None, check: Check) -> None:
    if console is None:
        print_json(asdict(check))
    else:
        _print(console, check)


async def _examine(plan: _Plan, config_path: Path | None, *, as_json: bool) -> int:
    """Print each check as it is done, and return how many failed."""
    console = None if as_json else open_console()
    failed = 0
    async with aclosing(_checks(plan, config_path)) as checks:
        async for check in checks:
            failed += check.status == "fail"
            _show(console, check)
    return failed


async def _checks(plan: _Plan, config_path: Path | None) -> AsyncGenerator[Check, None]:
    yield check_versions()
    if config_path is not None:
        try:
            plan = plan.with_config(config_path)
        except ConfigError as exc:
            yield Check(name=f"config {config_path}", status="fail", found=str(exc))
            return
        yield Check(name=f"config {config_path}", status="ok", found="can be used")
    async for check in _reachable(plan):
        yield _masked(check, plan.secrets)


async def _reachable(plan: _Plan) -> AsyncGenerator[Check, None]:
    try:
        judge = uncached(plan.judge.open())
    except ConfigError as exc:
        yield Check(name="judge", status="fail", found=str(exc))
    else:
        async with aclosing(judge):
            async for check in _asked(judge, plan):
                yield check
    async for check in _embedding(plan):
        yield check
    for endpoint, reach in plan.endpoints.items():
        yield await check_endpoint(
            endpoint, headers=reach.headers, tls=reach.tls, timeout_s=_TIMEOUT_S, must=plan.must_answer
        )
    if plan.store is not None:
        for check in check_store(plan.store):
            yield check


async def _asked(judge: Judge, plan: _Plan) -> AsyncGenerator[Check, None]:
    check = await check_judge(judge, timeout_s=plan.timeout_s)
    yield check
    if check.status != "fail" and not judge.identity.is_human:
        yield check_card(judge, plan.cards)
    if check.status != "fail" and not judge.identity.computes:
        yield await check_likelihoods(judge, plan.verify_of(judge.identity), timeout_s=plan.timeout_s)


async def _embedding(plan: _Plan) -> AsyncGenerator[Check, None]:
    try:
        embedder = plan.embedder.open_embedder() if plan.embedder else None
    except ConfigError as exc:
        if plan.embedder_named:
            yield Check(name="embeddings", status="fail", found=str(exc))
        return
    if embedder is not None:
        async with aclosing(embedder):
            yield await check_embedder(embedder, must=plan.embedder_named, timeout_s=plan.timeout_s)


def _secrets(*values: str) -> frozenset[str]:
    return frozenset(value for value in values if len(value) > 3)  # shorter ones occur by chance


def _masked(check: Check, secrets: frozenset[str]) -> Check:
    for secret in sorted(secrets, key=len, reverse=True):
        check = replace(
            check,
            name=check.name.replace(secret, "***"),
            found=check.found.replace(secret, "***"),
            advice=check.advice and check.advice.replace(secret, "***"),
        )
    return check


def _print(console: Console, check: Check) -> None:
    from rich.text import Text

    console.print(Text.assemble((f"{check.status:<4}", _STYLE[check.status]), "  ", one_line(check.name)))
    print_indented(console, 6, check.found)
    for line in (check.advice or "").splitlines():
        print_indented(console, 6, f"-> {line}")
