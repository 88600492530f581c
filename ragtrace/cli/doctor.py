"""``ragtrace doctor``: is everything that judging needs there?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragtrace.cli.checks import Check, check_endpoint, check_store, check_versions
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.model_checks import check_embedder, check_judge, check_likelihoods
from ragtrace.cli.options import JudgeChoice, json_option, judge_options
from ragtrace.cli.profiles import EmbedderChoice, embedder_option
from ragtrace.cli.terminal import one_line, open_console, print_indented, print_json
from ragtrace.errors import ConfigError
from ragtrace.judge import uncached
from ragtrace.metrics.verify_settings import VerifySettings
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Embedder, Judge
from ragtrace.tls import ClientTls

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["doctor"]

_DEFAULT_ENDPOINT = "http://localhost:4317"
_TIMEOUT_S = 5.0
_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


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
@json_option
def doctor(
    config_path: Path | None,
    judge: JudgeChoice,
    embedder: EmbedderChoice,
    endpoints: tuple[str, ...],
    timeout_s: float,
    as_json: bool,
) -> None:
    """Check that the judge answers, that endpoints take spans, and that the store can be used.

    The judge is asked about one sentence of ours; a language model also for log-probabilities and embeddings.
    Endpoints get an export without spans. Nothing is changed, and no key is shown. Exit code 1 if a check
    fails.

    \b
    Examples:
      ragtrace doctor
      ragtrace doctor --config collector.yaml
      ragtrace doctor --judge openai:qwen2.5 --base-url http://localhost:11434/v1
      ragtrace doctor --to http://tempo:4318 --json
    """
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
            secrets=_secrets(os.environ.get(judge.api_key_env, "")),
        )

    def with_config(self, path: Path) -> _Plan:
        """Add what a collector configuration names; options win over its judge.

        Raises:
            ConfigError: the configuration is wrong.
        """
        with needs_extra("collector"):
            from ragtrace_collector.config import load_config
            from ragtrace_collector.judging import embedder_of, judge_of, verify_settings_of

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
        key = config.judge.api_key
        keys = (os.environ.get(config.judge.api_key_env, ""), key.get_secret_value() if key else "")
        kept = self.embedder_named or (self.judge_named and config.judge.embedder is None)
        return replace(
            self,
            open_judge=self.open_judge if self.judge_named else partial(judge_of, config.judge),
            open_embedder=self.open_embedder if kept else partial(embedder_of, config.judge),
            embedder_named=self.embedder_named or config.judge.embedder is not None,
            verify_of=partial(verify_settings_of, config.judge),
            endpoints={**exports, **named},
            must_answer=True,
            store=config.store.path,
            secrets=self.secrets | _secrets(*keys, *values),
        )


async def _examine(plan: _Plan, config_path: Path | None, *, as_json: bool) -> int:
    """Print each check as it is done, and return how many failed."""
    console = None if as_json else open_console()
    failed = 0
    async with aclosing(_checks(plan, config_path)) as checks:
        async for check in checks:
            failed += check.status == "fail"
            if console is None:
                print_json(asdict(check))
            else:
                _print(console, check)
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
    if check.advice:
        print_indented(console, 6, f"-> {check.advice}")
