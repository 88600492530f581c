"""Guard the application: errors inside ragtrace are counted and never raised."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("ragtrace")
# Silent by default, like any library: an application that configures logging still gets our warnings.
log.addHandler(logging.NullHandler())

MAX_LOGGED = 1_000
"""Bounds memory in an application that creates classes at run time."""

_logged: set[tuple[str, str]] = set()
_stops, _unreads = itertools.count(1), itertools.count(1)
_stopped = _unread = 0


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
    count_unread()
    kind = type.__getattribute__(type(value), "__name__")  # its metaclass may lie
    if first_time(what, kind):
        log.warning("ragtrace: no %s was found in a value of type %s", what, kind)


def count_unread() -> None:
    """Count a value that could not be recorded."""
    global _unread
    _unread = next(_unreads)


def stopped() -> int:
    """Return the number of internal errors that were hidden from the application."""
    return _stopped


def unread() -> int:
    """Return the number of values that could not be recorded."""
    return _unread


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
    global _stopped
    _stopped = next(_stops)
    kind = type.__getattribute__(type(exc), "__name__")
    if not first_time(where, kind):
        return
    # Frames only: an exception's message may quote captured text.
    log.warning("ragtrace: %s failed with %s and was skipped", where, kind)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("ragtrace: raised at\n%s", "".join(traceback.format_tb(exc.__traceback__)))


def _count_from_zero() -> None:
    global _stops, _stopped, _unreads, _unread
    _stops, _unreads = itertools.count(1), itertools.count(1)
    _stopped = _unread = 0


os.register_at_fork(after_in_child=_count_from_zero)
