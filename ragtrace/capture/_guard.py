"""Guard the application: errors inside ragtrace are counted, told of once, and never raised."""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from ragtrace.capture.privacy.policy import ContentPolicy

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("ragtrace")
# Silent by default, like any library: an application that configures logging still gets our warnings.
log.addHandler(logging.NullHandler())

MAX_LOGGED = 1_000
"""Bounds memory in an application that creates classes at run time."""

_logged: set[tuple[str, str]] = set()
counts: Counter[str] = Counter()
"""By the names of ``CaptureStatistics``, since the process started."""
os.register_at_fork(after_in_child=counts.clear)


def guarded(function: Callable[P, R]) -> Callable[P, R | None]:
    """Catch every ``Exception`` of the function: count it, log it once without content, return ``None``."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001 - the application guard
            _stop(function.__qualname__, exc)
            return None

    return guarded


def note_unread(what: str, value: object) -> None:
    """Count a value that could not be recorded; log its role and its class once."""
    counts["values_unread"] += 1
    kind = type.__getattribute__(type(value), "__name__")  # its metaclass may lie
    if first_time(what, kind):
        log.warning("ragtrace: no %s was found in a value of type %s", what, kind)


def forget_logged() -> None:
    """Forget which messages were logged: capture restarts, or continues in a forked process."""
    _logged.clear()


def first_time(place: str, kind: str) -> bool:
    """Return whether this message is new, and mark it as logged."""
    if (place, kind) in _logged or len(_logged) >= MAX_LOGGED:
        return False
    _logged.add((place, kind))
    return True


def _stop(where: str, exc: Exception) -> None:
    counts["errors_stopped"] += 1
    kind = type.__getattribute__(type(exc), "__name__")
    if not first_time(where, kind):
        return
    # Frames only: an exception's message may quote captured text.
    log.warning("ragtrace: %s failed with %s and was skipped", where, kind)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("ragtrace: raised at\n%s", "".join(traceback.format_tb(exc.__traceback__)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """A tracer with its content policy."""

    tracer: Tracer
    policy: ContentPolicy


_active: Recorder | None = None


def active() -> Recorder | None:
    """Return the active recorder. If it is ``None``, the helpers do nothing."""
    return _active


def activate(recorder: Recorder | None) -> None:
    """Set the active recorder."""
    global _active
    forget_logged()
    _active = recorder
