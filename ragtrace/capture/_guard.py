"""The one wall between ragtrace and the application: what fails behind it is counted and never raised."""

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
# Silence by default, as for any library: an application that configures logging still gets our warnings.
log.addHandler(logging.NullHandler())

MAX_TOLD = 1_000
"""An application that makes classes as it runs must not grow our memory."""

_told: set[tuple[str, str]] = set()
_stops, _unreads = itertools.count(1), itertools.count(1)
_stopped = _unread = 0


def guarded(function: Callable[P, R]) -> Callable[P, R | None]:
    """Stop every ``Exception`` of the function: count it, tell it once without content, return ``None``."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001 - the application guard
            _stop(function.__qualname__, exc)
            return None

    return guarded


def note_unread(what: str, value: object) -> None:
    """Count a value that could not be recorded; tell what it was to be, and its class, once."""
    global _unread
    _unread = next(_unreads)
    kind = type.__getattribute__(type(value), "__name__")  # whatever its metaclass says
    if first_time(what, kind):
        log.warning("ragtrace: no %s was found in a value of type %s", what, kind)


def stopped() -> int:
    """Return how many errors of ragtrace's own were kept from the application so far."""
    return _stopped


def unread() -> int:
    """Return how many values could not be recorded so far."""
    return _unread


def forget_told() -> None:
    """Tell everything once more: capture begins anew, or goes on in a forked process."""
    _told.clear()


def first_time(place: str, kind: str) -> bool:
    """Say whether this was not told yet, and take it as told."""
    if (place, kind) in _told or len(_told) >= MAX_TOLD:
        return False
    _told.add((place, kind))
    return True


def _stop(where: str, exc: Exception) -> None:
    global _stopped
    _stopped = next(_stops)
    kind = type.__getattribute__(type(exc), "__name__")
    if not first_time(where, kind):
        return
    # Frames only: the message of an exception may quote the text under capture.
    log.warning("ragtrace: %s failed with %s and was skipped", where, kind)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("ragtrace: raised at\n%s", "".join(traceback.format_tb(exc.__traceback__)))


def _count_from_zero() -> None:
    global _stops, _stopped, _unreads, _unread
    _stops, _unreads = itertools.count(1), itertools.count(1)
    _stopped = _unread = 0


os.register_at_fork(after_in_child=_count_from_zero)
