"""Where commands read the collector's ledger: in its store, or from the collector that runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import FILE
from ragtrace.cli.settings import group, option
from ragtrace.clock import SystemClock
from ragtrace.errors import InputError, ReadError

if TYPE_CHECKING:
    from ragtrace_collector.config import CollectorConfig, StoreConfig
    from ragtrace_collector.ledger.account import Ledger
    from ragtrace_collector.operations.why import TraceStatus


_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Where the store is."""

    config_path: Path | None = option(
        "--config",
        type=FILE,
        metavar="FILE",
        help="The collector's configuration. [default: the built-in one]",
    )
    store: str | None = option(
        "--store",
        metavar="PLACE",
        help="The collector's store, or a copy of it: a path or postgresql://…",
    )

    def section(self) -> StoreConfig:
        """Return which store is meant: the named file, or what the configuration says.

        Raises:
            ConfigError: the configuration is wrong.
        """
        with needs_extra("collector"):
            return self.section_of(self.config())

    def config(self) -> CollectorConfig | None:
        """Return the configuration; ``None`` if only the store is named.

        Raises:
            ConfigError: it is wrong.
        """
        from ragtrace_collector.config import load_config

        is_named = self.store is not None and self.config_path is None
        return None if is_named else load_config(self.config_path, needs_secrets=False)

    def section_of(self, config: CollectorConfig | None) -> StoreConfig:
        """Return the section of the configuration, with the store that is named."""
        from ragtrace_collector.config import StoreConfig

        section = config.store if config else StoreConfig()
        return section if self.store is None else section.at(self.store)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """Where the ledger is: in the store, or with the collector that runs."""

    at: StoreOptions = group(StoreOptions)
    url: str | None = option(
        "--url", metavar="URL", help="The pages of a running collector: http://127.0.0.1:4329."
    )
    token_env: str = option(
        "--token-env",
        metavar="NAME",
        default="RAGTRACE_TOKEN",
        show_default=True,
        help="The environment variable that holds a token, for --url.",
    )

    def __post_init__(self) -> None:
        """Refuse two places at once."""
        if self.url is not None and (self.at.config_path or self.at.store):
            raise click.UsageError("--url asks the collector itself: leave out --config and --store")

    def standing(self, wanted: str) -> TraceStatus:
        """Say all that is known of a trace.

        Raises:
            ReadError: the store or the collector cannot be read.
            InputError: it is no trace id, or several begin so.
            ConfigError: the configuration is wrong.
        """
        from ragtrace.sync import wait_for
        from ragtrace_collector.operations.accounts import WHY_PATH, trace_status_form
        from ragtrace_collector.operations.why import look_up, trace_id_in
        from ragtrace_collector.service.from_config import sampler_of
        from ragtrace_collector.store.open import open_reading

        trace_id = trace_id_in(wanted)
        if self.url is not None:
            return trace_status_form.validate_python(self._get(self.url, f"{WHY_PATH}{quote(trace_id)}"))
        config = self.at.config()
        store = open_reading(self.at.section_of(config))
        looking = look_up(
            store.reports,
            store.index,
            trace_id,
            config=config,
            sampler=sampler_of(config.sample) if config else None,
            now_ns=SystemClock().now_ns(),
            content=store.reader,
        )
        return wait_for(looking)

    def ledger(self, *, since_ns: int | None) -> Ledger:
        """Read the account, or that of the answers seen since.

        Raises:
            ReadError: the store or the collector cannot be read.
            ConfigError: the configuration is wrong.
        """
        from ragtrace_collector.operations.accounts import LEDGER_PATH, ledger_form
        from ragtrace_collector.store.ledger import take_stock
        from ragtrace_collector.store.open import database_of

        if self.url is not None:
            parameters = {} if since_ns is None else {"since_ns": str(since_ns)}
            return ledger_form.validate_python(self._get(self.url, LEDGER_PATH, parameters))
        return take_stock(database_of(self.at.section()), since_ns=since_ns)

    def _get(self, url: str, path: str, parameters: Mapping[str, str] | None = None) -> object:
        import asyncio

        import httpx

        from ragtrace.http import UnreadableBody

        token = os.environ.get(self.token_env)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        asking = _requested(f"{url.rstrip('/')}{path}", parameters or {}, headers)
        try:
            status, redirects_to, body = asyncio.run(asking)
            answer = None if redirects_to else json.loads(body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, UnreadableBody, ValueError) as exc:
            raise ReadError(
                f"{url} does not answer like a collector's pages ({str(exc) or 'too slow'}): name "
                "`telemetry.listen` of its configuration, http://127.0.0.1:4329 by default"
            ) from exc
        if redirects_to:
            raise ReadError(
                f"{url} answers {status} and redirects to {redirects_to}, which is not followed: name the "
                "collector's own address"
            )
        if status == 200:
            return answer
        raise self._failure(url, status, answer)

    def _failure(self, url: str, status: int, answer: object) -> Exception:
        if status in (401, 403):
            return ReadError(f"{url} requires a token that may read: put it into {self.token_env}")
        message = answer.get("error") if isinstance(answer, dict) else None
        kind = InputError if status == 400 else ReadError
        return kind(str(message) if message else f"{url} answers {status}: it has no such page")


async def _requested(
    url: str, parameters: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[int, str | None, bytes]:
    """Return the status, the host that a redirect points to, and the body."""
    import asyncio

    from ragtrace.http import open_client, redirected_to

    async with (
        asyncio.timeout(_TIMEOUT_S),
        open_client(timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES) as client,
        client.stream("GET", url, params=parameters, headers=headers) as response,
    ):
        redirects_to = redirected_to(response)
        body = b"" if redirects_to else await response.aread()
        return response.status_code, redirects_to, body
