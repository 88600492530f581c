"""``ragtrace doctor``: is everything that judging needs there?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragtrace.cli.checks import Check, check_endpoint, check_judge, check_store, check_versions
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import JudgeChoice, json_option, judge_options
from ragtrace.cli.terminal import one_line, open_console, print_indented, print_json
from ragtrace.errors import ConfigError
from ragtrace.ports import Judge

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
@click.option("--to", "endpoints", multiple=True, metavar="ENDPOINT", help="OTLP endpoint; may be repeated.")
@json_option
def doctor(config_path: Path | None, judge: JudgeChoice, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Check that the judge answers, that endpoints take spans, and that the store can be used.

    The judge is asked about one sentence of ours. Endpoints get an export without spans. Nothing is changed,
    and no key is shown. Exit code 1 if a check fails.

    \b
    Examples:
      ragtrace doctor
      ragtrace doctor --config collector.yaml
      ragtrace doctor --judge openai:qwen2.5 --base-url http://localhost:11434/v1
      ragtrace doctor --to http://tempo:4318 --json
    """
    plan = _Plan.of(judge, endpoints)
    failed = asyncio.run(_examine(plan, config_path, as_json=as_json))
    click.get_current_context().exit(1 if failed else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be looked at."""

    open_judge: Callable[[], Judge]
    judge_named: bool
    """Whether an option names the judge."""
    endpoints: Mapping[str, Mapping[str, str]]
    """Headers by endpoint."""
    must_answer: bool = True
    """Whether somebody named the endpoints: else it is no failure that they are not there."""
    store: Path | None = None
    secrets: frozenset[str] = frozenset()
    """What must not be printed, whoever repeats it."""

    @classmethod
    def of(cls, judge: JudgeChoice, endpoints: Sequence[str]) -> _Plan:
        """Plan from options alone."""
        return cls(
            open_judge=partial(judge.open, max_concurrency=1),
            judge_named=judge.spec is not None or judge.base_url is not None,
            endpoints={endpoint: {} for endpoint in endpoints or [_DEFAULT_ENDPOINT]},
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
            from ragtrace_collector.service import judge_of

        config = load_config(path)
        named = self.endpoints if self.must_answer else {}
        exports = {export.endpoint: export.headers for export in config.export}
        values = [value for headers in exports.values() for value in headers.values()]
        key = os.environ.get(config.judge.api_key_env, "")
        return replace(
            self,
            open_judge=self.open_judge if self.judge_named else partial(judge_of, config.judge),
            endpoints={**exports, **named},
            must_answer=True,
            store=config.store.path,
            secrets=self.secrets | _secrets(key, *values),
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
        judge = plan.open_judge()
    except ConfigError as exc:
        yield Check(name="judge", status="fail", found=str(exc))
    else:
        async with aclosing(judge):
            yield await check_judge(judge)
    for endpoint, headers in plan.endpoints.items():
        yield await check_endpoint(endpoint, headers=headers, timeout_s=_TIMEOUT_S, must=plan.must_answer)
    if plan.store is not None:
        yield check_store(plan.store)


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
