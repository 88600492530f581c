"""``ragtrace doctor``: is everything that judging needs there, and what does an application send?"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragtrace.cli.app_run import AppRun, run_app
from ragtrace.cli.captured import calls_json, captured_traces, check_capture, check_run, check_trace
from ragtrace.cli.checks import Check, check_endpoint, check_store, check_versions
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.model_checks import check_embedder, check_judge, check_likelihoods
from ragtrace.cli.options import JudgeChoice, json_option, judge_options
from ragtrace.cli.profiles import EmbedderChoice, embedder_option
from ragtrace.cli.terminal import many, one_line, open_console, print_indented, print_json
from ragtrace.durations import duration_of
from ragtrace.errors import ConfigError
from ragtrace.http.tls import ClientTls
from ragtrace.judge import uncached
from ragtrace.judge.base_url import secrets_in
from ragtrace.metrics.verify_settings import VerifySettings
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Embedder, Judge

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace_collector.config import JudgeConfig


_DEFAULT_ENDPOINT = "http://localhost:4317"
_TIMEOUT_S = 5.0
_SHOWN_TRACES = 20
_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        duration = duration_of(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    if duration is None or not duration:
        raise click.BadParameter(f"{text!r} is no duration: write 30s or 5m")
    return duration.total_seconds()


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Check what this collector configuration names: judge, endpoints, store.",
)
@judge_options
@embedder_option
@click.option("--to", "endpoints", multiple=True, metavar="ENDPOINT", help="OTLP endpoint; may be repeated.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    help="For each thing that a model is asked; local models on a CPU may need more.",
)
@click.option(
    "--app",
    "app",
    metavar="COMMAND",
    help="Run this application instead, and show what is captured of it and whether that can be judged.",
)
@click.option(
    "--for",
    "for_s",
    metavar="DURATION",
    callback=_duration,
    help="Stop the application of --app after so long, as by Ctrl-C: 30s, 5m. Without it: when it ends.",
)
@click.option("--show-content", is_flag=True, help="With --app: the texts too, not their lengths alone.")
@json_option
def doctor(
    config_path: Path | None,
    judge: JudgeChoice,
    embedder: EmbedderChoice,
    endpoints: tuple[str, ...],
    timeout_s: float,
    app: str | None,
    for_s: float | None,
    show_content: bool,
    as_json: bool,
) -> None:
    """Check that the judge answers, that endpoints take spans, and that the store can be used.

    The judge is asked about one sentence of ours; a language model also for log-probabilities and embeddings.
    Endpoints get an export without spans. Nothing is changed, and no key is shown. Exit code 1 if a check
    fails.

    With --app it runs an application and receives its spans in the collector's place, wherever it would send
    them: nothing is judged, and neither judge nor key is needed. A server is asked something meanwhile and
    stopped with Ctrl-C. Exit code 0 if a RAG call was captured that can be judged, else 1.

    \b
    Examples:
      ragtrace doctor
      ragtrace doctor --config collector.yaml
      ragtrace doctor --judge openai:qwen2.5 --base-url http://localhost:11434/v1
      ragtrace doctor --to http://tempo:4318 --json
      ragtrace doctor --app 'python app.py'
      ragtrace doctor --app 'uvicorn app:app' --for 1m --show-content
    """
    if app is not None:
        if config_path is not None or endpoints:
            raise click.UsageError(
                "--app runs an application and looks at nothing else: leave out --config and --to"
            )
        judged = asyncio.run(
            _look_at(
                app,
                run_app(app, for_s=for_s, stdout=sys.stderr if as_json else None),
                as_json=as_json,
                show_content=show_content,
            )
        )
        click.get_current_context().exit(0 if judged else 1)
    if for_s is not None or show_content:
        raise click.UsageError("--for and --show-content go with --app")
    plan = _Plan.of(judge, embedder, endpoints, timeout_s)
    failed = asyncio.run(_examine(plan, config_path, as_json=as_json))
    click.get_current_context().exit(1 if failed else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """How an endpoint is reached."""

    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ClientTls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be looked at."""

    open_judge: Callable[[], Judge]
    judge_named: bool
    """Whether an option names the judge."""
    open_embedder: Callable[[], Embedder | None]
    embedder_named: bool
    """Whether somebody named the embedder: else it is no failure that it is not there."""
    verify_of: Callable[[JudgeIdentity], VerifySettings] = lambda _judge: VerifySettings()
    """How a judge is asked for verdicts."""
    timeout_s: float
    """For each thing that a model is asked."""
    endpoints: Mapping[str, _Reach]
    must_answer: bool = True
    """Whether somebody named the endpoints: else it is no failure that they are not there."""
    store: Path | None = None
    secrets: frozenset[str] = frozenset()
    """What must not be printed, whoever repeats it."""

    @classmethod
    def of(
        cls, judge: JudgeChoice, embedder: EmbedderChoice, endpoints: Sequence[str], timeout_s: float
    ) -> _Plan:
        """Plan from options alone."""
        return cls(
            open_judge=partial(judge.open, max_concurrency=1),
            judge_named=judge.spec is not None or judge.base_url is not None,
            open_embedder=partial(embedder.open, judge),
            embedder_named=embedder.spec is not None,
            timeout_s=timeout_s,
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
            from ragtrace_collector.judge.evaluator import embedder_of, judge_of, verify_settings_of

        config = load_config(path)
        named = self.endpoints if self.must_answer else {}
        exports = {
            export.endpoint: _Reach(
                headers={name: value.get_secret_value() for name, value in export.headers.items()},
                tls=export.tls.opened() if export.tls else None,
            )
            for export in config.export
        }
        values = [value for reach in exports.values() for value in reach.headers.values()]
        keys = _keys_of(config.judge)
        kept = self.embedder_named or (self.judge_named and config.judge.embedder is None)
        return replace(
            self,
            open_judge=self.open_judge if self.judge_named else partial(judge_of, config.judge),
            open_embedder=self.open_embedder if kept else partial(embedder_of, config.judge),
            embedder_named=self.embedder_named or config.judge.embedder is not None,
            verify_of=partial(verify_settings_of, config.judge),
            endpoints={**exports, **named},
            must_answer=True,
            store=config.store.file,
            secrets=self.secrets | _secrets(*keys, *values),
        )


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
        judge = uncached(plan.open_judge())
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
        yield check_store(plan.store)


async def _asked(judge: Judge, plan: _Plan) -> AsyncGenerator[Check, None]:
    check = await check_judge(judge, timeout_s=plan.timeout_s)
    yield check
    if check.status != "fail" and not judge.identity.computes:
        yield await check_likelihoods(judge, plan.verify_of(judge.identity), timeout_s=plan.timeout_s)


async def _embedding(plan: _Plan) -> AsyncGenerator[Check, None]:
    try:
        embedder = plan.open_embedder()
    except ConfigError as exc:
        if plan.embedder_named:
            yield Check(name="embeddings", status="fail", found=str(exc))
        return
    if embedder is not None:
        async with aclosing(embedder):
            yield await check_embedder(embedder, must=plan.embedder_named, timeout_s=plan.timeout_s)


def _keys_of(config: JudgeConfig) -> Iterator[str]:
    judges = [judge for judge in (config, config.second, config.cheaper) if judge is not None]
    for judge in judges:
        yield os.environ.get(judge.api_key_env or "", "")
        yield judge.api_key.get_secret_value() if judge.api_key else ""
        yield from (value.get_secret_value() for value in (judge.headers or {}).values())
        yield from secrets_in(judge.base_url)


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
