"""The default folder for ragtrace's persistent state."""

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
    """Return the folder: ``RAGTRACE_STATE_DIR``, else systemd's ``STATE_DIRECTORY``, else the user's.

    Raises:
        ConfigError: none of them is set, and the user has no home folder.
    """
    if named := environ.get("RAGTRACE_STATE_DIR"):
        return Path(named).expanduser()
    if of_service := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(of_service)
    of_user = environ.get("XDG_STATE_HOME", "")
    # the XDG specification says to ignore relative paths
    return (Path(of_user) if Path(of_user).is_absolute() else _home() / ".local" / "state") / "ragtrace"


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the default path of a collector's store.

    Raises:
        ConfigError: there is no state folder.
    """
    return state_folder(environ) / STORE_NAME


def make_state_folder(environ: Mapping[str, str] = os.environ) -> None:
    """Create the folder, for its owner alone.

    Raises:
        ConfigError: it cannot be created.
    """
    folder = state_folder(environ)
    try:
        make_folder(folder, mode=_OWNER_ONLY)
    except OSError as exc:
        raise ConfigError(
            f"the state folder {str(folder)!r} cannot be created ({exc.strerror}): set RAGTRACE_STATE_DIR to"
            " another folder, or set `store.path`"
        ) from exc


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as exc:
        raise ConfigError("this user has no home folder: set RAGTRACE_STATE_DIR or `store.path`") from exc
