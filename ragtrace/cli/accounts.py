"""Where the commands about the collector's account read it: in its file, or from the collector that runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.clock import SystemClock
from ragtrace.errors import InputError, ReadError
from ragtrace.http import UnreadableBody, open_web_client, read_whole, redirected_to

if TYPE_CHECKING:
    from ragtrace_collector.config import CollectorConfig
    from ragtrace_collector.ledger.account import Ledger
    from ragtrace_collector.operations.why import TraceStatus


Callback: TypeAlias = Callable[..., Any]

_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What was chosen on the command line."""

    config_path: Path | None
    store: Path | None
    url: str | None
    token_env: str

    def standing(self, wanted: str) -> TraceStatus:
        """Say all that is known of a trace.

        Raises:
            ReadError: the store or the collector cannot be read.
            InputError: it is no trace id, or several begin so.
            ConfigError: the configuration is wrong.
        """
        from ragtrace_collector.operations.accounts import WHY_PATH, trace_status_form
        from ragtrace_collector.operations.why import look_up, trace_id_in
        from ragtrace_collector.service.from_config import sampler_of

        trace_id = trace_id_in(wanted)
        if self.url is not None:
            return trace_status_form.validate_python(self._get(self.url, f"{WHY_PATH}{quote(trace_id)}"))
        config = self._config()
        return look_up(
            self._store(config),
            trace_id,
            config=config,
            sampler=sampler_of(config.sample) if config else None,
            now_ns=SystemClock().now_ns(),
        )

    def ledger(self, *, since_ns: int | None) -> Ledger:
        """Read the account, or that of the answers seen since.

        Raises:
            ReadError: the store or the collector cannot be read.
            ConfigError: the configuration is wrong.
        """
        from ragtrace_collector.operations.accounts import LEDGER_PATH, ledger_form
        from ragtrace_collector.store.ledger import take_stock

        if self.url is not None:
            parameters = {} if since_ns is None else {"since_ns": str(since_ns)}
            return ledger_form.validate_python(self._get(self.url, LEDGER_PATH, parameters))
        return take_stock(self.store_file(), since_ns=since_ns)

    def store_file(self) -> Path:
        """Return where the store is.

        Raises:
            ConfigError: the configuration is wrong.
        """
        return self._store(self._config())

    def _config(self) -> CollectorConfig | None:
        from ragtrace_collector.config import default_config_text, load_config, parse_config

        if self.config_path is not None:
            return load_config(self.config_path)
        if self.store is not None:
            return None
        return parse_config(default_config_text(), where="the default configuration")

    def _store(self, config: CollectorConfig | None) -> Path:
        if self.store is not None:
            return self.store
        assert config is not None
        return config.store.file

    def _get(self, url: str, path: str, parameters: Mapping[str, str] | None = None) -> object:
        import httpx

        token = os.environ.get(self.token_env)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        asking = _asked(f"{url.rstrip('/')}{path}", parameters or {}, headers)
        try:
            status, redirects_to, body = asyncio.run(asking)
            answer = None if redirects_to else json.loads(body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, UnreadableBody, ValueError) as exc:
            raise ReadError(
                f"{url} does not answer as a collector's pages do ({str(exc) or 'too slow'}): name "
                "`telemetry.listen` of its configuration, http://127.0.0.1:4329 by default"
            ) from exc
        if redirects_to:
            raise ReadError(
                f"{url} answers {status} and redirects to {redirects_to}, which is not followed: name the "
                "collector's own address"
            )
        if status == 200:
            return answer
        raise self._refusal(url, status, answer)

    def _refusal(self, url: str, status: int, answer: object) -> Exception:
        if status in (401, 403):
            return ReadError(f"{url} asks for a token that may read: put it into {self.token_env}")
        message = answer.get("error") if isinstance(answer, dict) else None
        kind = InputError if status == 400 else ReadError
        return kind(str(message) if message else f"{url} answers {status}: it has no such page")


async def _asked(
    url: str, parameters: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[int, str | None, bytes]:
    """Return the status, the host that a redirect points to, and the body."""
    async with (
        asyncio.timeout(_TIMEOUT_S),
        open_web_client(timeout_s=_TIMEOUT_S) as client,
        client.stream("GET", url, params=parameters, headers=headers) as response,
    ):
        redirects_to = redirected_to(response)
        body = b"" if redirects_to else await read_whole(response, most_bytes=_MOST_BYTES)
        return response.status_code, redirects_to, body


_config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The collector's configuration. Without any option: the default one.",
)
_store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="The collector's store, or a copy of it.",
)


def store_options(command: Callback) -> Callback:
    """Add the options that say where the store is, for what only its own machine can do."""

    @_config_option
    @_store_option
    @wraps(command)
    def with_store(config_path: Path | None, store: Path | None, **others: Any) -> None:
        with needs_extra("collector"):
            accounts = Accounts(config_path=config_path, store=store, url=None, token_env="")
            command(store=accounts.store_file(), **others)

    return with_store


def accounts_options(command: Callback) -> Callback:
    """Add the options that say where the account is."""

    @_config_option
    @_store_option
    @click.option("--url", metavar="URL", help="The pages of a running collector: http://127.0.0.1:4329.")
    @click.option(
        "--token-env",
        metavar="NAME",
        default="RAGTRACE_TOKEN",
        show_default=True,
        help="The environment variable that holds a token, for --url.",
    )
    @wraps(command)
    def with_accounts(
        config_path: Path | None, store: Path | None, url: str | None, token_env: str, **others: Any
    ) -> None:
        if url is not None and (config_path or store):
            raise click.UsageError("--url asks the collector itself: leave out --config and --store")
        accounts = Accounts(config_path=config_path, store=store, url=url, token_env=token_env)
        command(accounts=accounts, **others)

    return with_accounts
