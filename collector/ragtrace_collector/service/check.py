"""What a configuration names is looked at before anything starts: nothing is made, and nobody is asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

from ragtrace.errors import ConfigError
from ragtrace.process import SystemClock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.deliver import open_export
from ragtrace_collector.drift import check_anchors
from ragtrace_collector.judge import open_evaluator
from ragtrace_collector.service.collector import check_kafka
from ragtrace_collector.service.page import check_traces
from ragtrace_collector.store.open import cipher_of, database_of
from ragtrace_collector.store.sqlite import check_owner
from ragtrace_collector.web.server import open_auth

_FILE: Final = "otlp-file:"
_HEAD: Final = b"SQLite format 3\x00"


def check_config(config: CollectorConfig) -> tuple[str, ...]:
    """Open what a configuration names, as far as that touches no network; return what may stand in the way.

    Raises:
        ConfigError: names everything that cannot be used, a line each.
    """
    faults = [fault for check in _CHECKS for fault in _faults(check, config)]
    if faults:
        raise ConfigError("\n".join(faults))
    return asyncio.run(_old_prices(config))


async def _old_prices(config: CollectorConfig) -> tuple[str, ...]:
    async with aclosing(open_evaluator(config)) as evaluator:
        return evaluator.old_prices(now_ns=SystemClock().now_ns())


def _faults(check: Callable[[CollectorConfig], None], config: CollectorConfig) -> Iterator[str]:
    try:
        check(config)
    except ConfigError as exc:
        yield str(exc)


def _check_auth(config: CollectorConfig) -> None:
    open_auth(config, SystemClock())


def _check_evaluator(config: CollectorConfig) -> None:
    async def open_and_close() -> None:
        async with aclosing(open_evaluator(config)):
            pass

    asyncio.run(open_and_close())


def _check_exports(config: CollectorConfig) -> None:
    for number, export in enumerate(config.export):
        open_export(export)
        if export.endpoint.startswith(_FILE):
            _check_file(Path(export.endpoint.removeprefix(_FILE)), key=f"export[{number}].endpoint")


def _check_store(config: CollectorConfig) -> None:
    cipher_of(config.store)
    if config.store.url is not None:
        database_of(config.store)
        return
    path = config.store.file
    _check_file(path, key="store.path", makes_folder=config.store.path is None, may_be_link=True)
    if _check_database(path, key="store.path"):
        check_owner(path)


def _check_cache(config: CollectorConfig) -> None:
    if cache := config.judge.cache:
        _check_file(cache, key="judge.cache", makes_folder=True)
        _check_database(cache, key="judge.cache")


def _check_page(config: CollectorConfig) -> None:
    check_traces(config)
    if config.ui.reviews:
        _check_file(config.ui.reviews, key="ui.reviews")
        _check_database(config.ui.reviews, key="ui.reviews")


_CHECKS: Final = (
    _check_auth,
    check_kafka,
    _check_evaluator,
    _check_exports,
    _check_store,
    _check_cache,
    _check_page,
    check_anchors,
)


def _check_file(path: Path, *, key: str, makes_folder: bool = False, may_be_link: bool = False) -> None:
    """See that a file can be written, or made: by the mode of its folder, since nothing is left behind."""
    folder = path.absolute().parent
    if path.is_symlink() and not may_be_link:
        raise ConfigError(
            f"`{key}`: {str(path)!r} is a link, and none is followed: name the file it leads to"
        )
    if path.is_dir():
        raise ConfigError(f"`{key}`: {str(path)!r} is a folder: name a file")
    if path.exists():
        if not os.access(path, os.R_OK | os.W_OK):
            raise ConfigError(f"`{key}`: {str(path)!r} cannot be written: change its owner or its mode")
        return
    if makes_folder:
        folder = next(each for each in (folder, *folder.parents) if each.exists())
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise ConfigError(f"`{key}`: the folder {str(folder)!r} {what}: make it, or name another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"`{key}`: nothing can be written into the folder {str(folder)!r}: name another")


def _check_database(path: Path, *, key: str) -> bool:
    """See that a file that is there is a database; return whether there is one."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        if file.read(len(_HEAD)) != _HEAD:
            raise ConfigError(f"`{key}`: {str(path)!r} is not a database: name another path")
    return True
