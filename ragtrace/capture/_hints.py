"""One-line hints on stderr, each once, if a setup problem prevents verdicts.

They go to stderr because an application without a logging configuration shows no library logs, and most
first-time users have such an application.
"""

from __future__ import annotations

import logging
import sys

from ragtrace.capture._guard import guarded, log

_shown: dict[str, object] = {}
"""Kept over a fork, so that a server's children do not repeat its hints."""
_quiet = False


def be_quiet(quiet: bool) -> None:
    """Send hints to the log only, or to stderr again."""
    global _quiet
    _quiet = quiet


def hint(what: str, line: str) -> bool:
    """Print a line about ``what`` once per process; return whether it was printed now.

    The line must not contain captured content.
    """
    mine = object()
    if _shown.setdefault(what, mine) is not mine:  # atomic: two threads print it once
        return False
    _say(line)
    return True


@guarded
def _say(line: str) -> None:
    shown = _quiet or _is_shown_by_the_log()
    log.warning("ragtrace: %s", line)
    if not shown and sys.stderr is not None:
        sys.stderr.write(f"ragtrace: {line}\n")


def _is_shown_by_the_log() -> bool:
    """Return whether the application's logging already prints our warnings on stderr."""
    if not log.isEnabledFor(logging.WARNING):
        return False
    logger: logging.Logger | None = log
    while logger is not None:
        if any(map(_writes_to_stderr, logger.handlers)):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _writes_to_stderr(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    return handler.level <= logging.WARNING and stream is not None and stream in (sys.stderr, sys.__stderr__)
