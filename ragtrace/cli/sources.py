"""Where stored traces are read from, and which of them: options of commands that read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.cli.moments import DURATION, MOMENT, Moment
from ragtrace.http.tls import ClientTls
from ragtrace.ports import TraceQuery

Callback: TypeAlias = Callable[..., Any]

_DEFAULT_SINCE: Final = "1h"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchChoice:
    """What stored traces are looked for, as it was typed."""

    service: str | None
    operation: str | None
    since: Moment | None
    until: Moment | None
    tags: tuple[tuple[str, str], ...]
    traceql: str | None
    min_age: timedelta

    @property
    def is_made(self) -> bool:
        """Whether anything was chosen."""
        return bool(self.service or self.operation or self.since or self.until or self.tags or self.traceql)

    def query(self, now_ns: int) -> TraceQuery:
        """Return the query, whose relative times begin now.

        Raises:
            click.UsageError: its end is not after its beginning.
        """
        latest_ns = now_ns - int(self.min_age.total_seconds() * 1e9)
        since_ns = (self.since or Moment(_DEFAULT_SINCE)).at(now_ns)
        until_ns = min(self.until.at(now_ns), latest_ns) if self.until else latest_ns
        if until_ns <= since_ns:
            raise click.UsageError(
                f"nothing lies between --since {self.since or _DEFAULT_SINCE} and "
                f"{f'--until {self.until}' if self.until else 'now'} less --min-age"
            )
        return TraceQuery(
            since_ns=since_ns,
            until_ns=until_ns,
            service=self.service,
            operation=self.operation,
            tags=dict(self.tags),
            traceql=self.traceql,
        )


def search_options(command: Callback) -> Callback:
    """Add the options that say which traces are wanted, as the argument ``search``."""

    @click.option("--service", metavar="NAME", help="Traces with a span of this service.")
    @click.option("--operation", metavar="NAME", help="Traces with a span of this name.")
    @click.option(
        "--since",
        type=MOMENT,
        metavar="TIME",
        help=f"From then on: how long ago (2h, 7d), or a date.  [default of a search: {_DEFAULT_SINCE}]",
    )
    @click.option("--until", type=MOMENT, metavar="TIME", help="Up to then.  [default: now]")
    @click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_tags,
        help="Traces with a span that has this attribute; may be repeated.",
    )
    @click.option("--traceql", metavar="QUERY", help="A selection in Tempo's own language, instead.")
    @click.option(
        "--min-age",
        type=DURATION,
        default="5m",
        show_default=True,
        metavar="TIME",
        help="Leave out what is younger: its spans may not all be there.",
    )
    @wraps(command)
    def with_search(*args: Any, **kwargs: Any) -> Any:
        names = SearchChoice.__dataclass_fields__
        chosen = SearchChoice(**{name: kwargs.pop(name) for name in names})
        if chosen.traceql and (chosen.service or chosen.operation or chosen.tags):
            raise click.UsageError("--traceql takes the place of --service, --operation and --tag")
        return command(*args, search=chosen, **kwargs)

    return with_search


def access_options(command: Callback) -> Callback:
    """Add the options that say how to get into the source, as the argument ``access``."""
    return _access_options("source", "the source", "access")(command)


def destination_access_options(command: Callback) -> Callback:
    """Add the options that say how to get into the destination, as the argument ``destination_access``."""
    return _access_options("to", "the destination", "destination_access")(command)


def _access_options(prefix: str, where: str, argument: str) -> Callable[[Callback], Callback]:
    def add_options(command: Callback) -> Callback:
        @click.option(
            f"--{prefix}-header",
            f"{prefix}_headers",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_headers,
            help=f"Sent to {where}: X-Scope-OrgID=TENANT. May be repeated.",
        )
        @click.option(
            f"--{prefix}-token-env",
            metavar="VARIABLE",
            callback=_secret,
            help=f"The environment variable that holds the bearer token for {where}.",
        )
        @click.option(
            f"--{prefix}-login-env",
            metavar="VARIABLE",
            callback=_secret,
            help=f"The environment variable that holds USER:PASSWORD for {where}.",
        )
        @click.option(f"--{prefix}-ca", type=_FILE, metavar="FILE", help=f"Certificates to trust {where} by.")
        @click.option(
            f"--{prefix}-cert", type=_FILE, metavar="FILE", help="Our certificate, where it asks for one."
        )
        @click.option(f"--{prefix}-key", type=_FILE, metavar="FILE", help="The certificate's key.")
        @wraps(command)
        def with_access(*args: Any, **kwargs: Any) -> Any:
            given = {name: kwargs.pop(f"{prefix}_{name}") for name in _OF_ACCESS}
            return command(*args, **{argument: _access(prefix, **given)}, **kwargs)

        return with_access

    return add_options


_OF_ACCESS: Final = ("headers", "token_env", "login_env", "ca", "cert", "key")


def _access(
    prefix: str,
    *,
    headers: dict[str, str],
    token_env: str | None,
    login_env: str | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
) -> ConnectionSettings:
    user, colon, password = (login_env or "").partition(":")
    if login_env and not colon:
        raise click.UsageError(f"the variable of --{prefix}-login-env must hold USER:PASSWORD")
    return ConnectionSettings(
        headers=headers,
        basic=(user, password) if login_env else None,
        token=token_env,
        tls=ClientTls(ca=ca, cert=cert, key=key) if any((ca, cert, key)) else None,
    )


_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


def _pairs(texts: tuple[str, ...], what: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    if any(not mark or not key for key, mark, _ in pairs):
        raise click.BadParameter(f"write {what}")
    return [(key, value) for key, _, value in pairs]


def _tags(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(_pairs(texts, "KEY=VALUE, such as deployment.environment.name=prod"))


def _headers(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    return dict(_pairs(texts, "NAME=VALUE, such as X-Scope-OrgID=team-a"))


def _secret(_: click.Context, __: click.Parameter, variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise click.BadParameter(f"the environment variable {variable} is not set")
    return os.environ[variable]
