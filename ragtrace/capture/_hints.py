"""What a person must hear who waits for verdicts that cannot come: each once, in one line, on stderr.

An application that never set logging up hears nothing of a library's log; and who tries ragtrace for the
first time has such an application.
"""

from __future__ import annotations

import logging
import sys

from ragtrace.capture._guard import guarded, log

_told: dict[str, object] = {}
"""Kept over a fork: the children of a server repeat nothing that it said."""
_quiet = False


def be_quiet(quiet: bool) -> None:
    """Leave hints to the log from now on, or say them on stderr again."""
    global _quiet
    _quiet = quiet


def hint(what: str, line: str) -> bool:
    """Say a line about ``what``, unless that was done in this process; return whether it was said now.

    It must hold no content.
    """
    mine = object()
    if _told.setdefault(what, mine) is not mine:  # one step: two threads say it once
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
    """Say whether the application's logging puts our warnings on its stderr: then once is there."""
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
