"""Where ragtrace keeps what must outlive a process, unless it is told another place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ragtrace.errors import ConfigError
from ragtrace.files.durable import make_folder

STORE_NAME: Final = "ragtrace.db"
_OWNER_ONLY: Final = 0o700


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder: ``RAGTRACE_STATE_DIR``, else systemd's ``STATE_DIRECTORY``, else that of the user.

    Raises:
        ConfigError: none of them says where, and the user has no home.
    """
    if named := environ.get("RAGTRACE_STATE_DIR"):
        return Path(named).expanduser()
    if of_service := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(of_service)
    of_user = environ.get("XDG_STATE_HOME", "")
    # the specification has relative ones ignored
    return (Path(of_user) if Path(of_user).is_absolute() else _home() / ".local" / "state") / "ragtrace"


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a collector's store is that no configuration names.

    Earlier versions had it in the current folder: one that is there holds acknowledged answers, and is gone
    on with until there is one in the state folder.

    Raises:
        ConfigError: there is no state folder.
    """
    return left_store(environ) or state_folder(environ) / STORE_NAME


def left_store(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the store of an earlier version in the current folder, if it is the one to go on with."""
    here = Path.cwd() / STORE_NAME
    there = state_folder(environ) / STORE_NAME
    return here if here.is_file() and not there.exists() else None


def make_state_folder(environ: Mapping[str, str] = os.environ) -> None:
    """Make the folder, for its owner alone.

    Raises:
        ConfigError: it cannot be made.
    """
    folder = state_folder(environ)
    try:
        make_folder(folder, mode=_OWNER_ONLY)
    except OSError as exc:
        raise ConfigError(
            f"the state folder {str(folder)!r} cannot be made ({exc.strerror}): set RAGTRACE_STATE_DIR to one"
            " that can, or `store.path`"
        ) from exc


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as exc:
        raise ConfigError("this user has no home: set RAGTRACE_STATE_DIR, or `store.path`") from exc
