"""One run of `ragtrace doctor`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from ragtrace.cli.doctor import ApplicationOptions, TargetOptions
from ragtrace.cli.doctor_application import (
    AppRun,
    calls_json,
    captured_traces,
    check_capture,
    check_run,
    check_trace,
    run_app,
)
from ragtrace.cli.doctor_checks import (
    Check,
    check_card,
    check_embedder,
    check_endpoint,
    check_judge,
    check_likelihoods,
    check_store,
    check_topics,
    check_versions,
)
from ragtrace.cli.evaluator_options import ChosenEvaluator
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json
from ragtrace.errors import ConfigError
from ragtrace.judge import uncached
from ragtrace.ports import Judge

if TYPE_CHECKING:
    from rich.console import Console


_DEFAULT_ENDPOINT = "http://localhost:4317"
_TIMEOUT_S = 5.0
_REQUESTS: Final = 2
"""As many of the judge's timeouts are waited for each thing that a model is asked."""
_SECTIONS: Final = ("judge", "evaluate", "export", "store", "receive")
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
    return asyncio.run(_examine(targets, as_json=as_json)) == 0


def _secrets_in(chosen: ChosenEvaluator) -> Iterator[str]:
    spec = chosen.spec
    for judge in (spec.judge, spec.second, spec.embedder):
        yield from judge.secrets if judge else ()
    for export in chosen.config.export:
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


async def _examine(targets: TargetOptions, *, as_json: bool) -> int:
    """Print each check as it is done, and return how many failed."""
    console = None if as_json else open_console()
    failed = 0
    async with aclosing(_checks(targets)) as checks:
        async for check in checks:
            failed += check.status == "fail"
            _show(console, check)
    return failed


async def _checks(targets: TargetOptions) -> AsyncGenerator[Check, None]:
    yield check_versions()
    path = targets.judge.config.path
    name = f"config {path}" if path else "settings"
    try:
        chosen = targets.judge.evaluator(only=_SECTIONS)
    except ConfigError as exc:
        yield Check(name=name, status="fail", found=str(exc))
        return
    if path is not None:
        yield Check(name=name, status="ok", found="can be used")
    secrets = {each for each in _secrets_in(chosen) if len(each) > 3}  # shorter ones occur by chance
    async for check in _reachable(targets, chosen):
        yield _masked(check, secrets)


async def _reachable(targets: TargetOptions, chosen: ChosenEvaluator) -> AsyncGenerator[Check, None]:
    spec, config = chosen.spec, chosen.config
    timeout_s = _REQUESTS * spec.judge.timeout_s
    try:
        judge = uncached(spec.judge.open())
    except ConfigError as exc:
        yield Check(name="judge", status="fail", found=str(exc))
    else:
        async with aclosing(judge):
            async for check in _asked(judge, chosen, timeout_s):
                yield check
    async for check in _embedding(chosen, timeout_s):
        yield check
    is_configured = targets.judge.config.path is not None
    for export in config.export:
        headers = {name: value.get_secret_value() for name, value in export.headers.items()}
        tls = export.tls.opened() if export.tls else None
        yield await check_endpoint(export.endpoint, headers=headers, tls=tls, timeout_s=_TIMEOUT_S, must=True)
    must = bool(targets.endpoints)
    for endpoint in targets.endpoints or (() if is_configured or config.export else (_DEFAULT_ENDPOINT,)):
        if endpoint not in [export.endpoint for export in config.export]:
            yield await check_endpoint(endpoint, headers={}, timeout_s=_TIMEOUT_S, must=must)
    if is_configured:
        for check in check_store(config.store):
            yield check
    if config.receive.kafka is not None:
        for check in check_topics(config.receive.kafka):
            yield check


async def _asked(judge: Judge, chosen: ChosenEvaluator, timeout_s: float) -> AsyncGenerator[Check, None]:
    check = await check_judge(judge, timeout_s=timeout_s)
    yield check
    if check.status != "fail" and not judge.identity.is_human:
        yield check_card(judge, chosen.spec)
    if check.status != "fail" and not judge.identity.computes:
        verify = chosen.spec.limits(judge.identity).verify
        yield await check_likelihoods(judge, verify, timeout_s=timeout_s)


async def _embedding(chosen: ChosenEvaluator, timeout_s: float) -> AsyncGenerator[Check, None]:
    """Check the embedder; its absence is a failure only if somebody named it."""
    must = chosen.config.judge.embedder is not None
    try:
        embedder = chosen.spec.embedder.open_embedder() if chosen.spec.embedder else None
    except ConfigError as exc:
        if must:
            yield Check(name="embeddings", status="fail", found=str(exc))
        return
    if embedder is not None:
        async with aclosing(embedder):
            yield await check_embedder(embedder, must=must, timeout_s=timeout_s)


def _masked(check: Check, secrets: set[str]) -> Check:
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
