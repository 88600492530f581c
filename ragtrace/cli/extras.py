"""Optional dependencies: name what is missing, with the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ragtrace.errors import ConfigError

_OURS = ("ragtrace", "ragtrace_collector")


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Import what an extra of the distribution brings.

    Raises:
        ConfigError: it is not installed; says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        from ragtrace.extras import install_command

        missing = (exc.name or "").partition(".")[0]
        if not missing or missing in _OURS:
            raise
        raise ConfigError(
            f"this command needs {missing}, which is not installed: {install_command(extra)}"
        ) from exc
