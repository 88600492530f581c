"""The one wall between ragtrace and the application: what fails behind it is counted and never raised."""

from __future__ import annotations

import functools
import itertools
import logging
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["guarded", "log", "stopped"]

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("ragtrace")
# Silence by default, as for any library: an application that configures logging still gets our warnings.
log.addHandler(logging.NullHandler())

_stops = itertools.count(1)
_stopped = 0


def guarded(function: Callable[P, R]) -> Callable[P, R | None]:
    """Stop every ``Exception`` of the function: count it, log it without content, and return ``None``."""

    @functools.wraps(function)
    def behind_the_wall(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001 - the application guard
            _stop(function.__qualname__, exc)
            return None

    return behind_the_wall


def stopped() -> int:
    """Return how many errors of ragtrace's own were kept from the application so far."""
    return _stopped


def _stop(where: str, exc: Exception) -> None:
    global _stopped
    _stopped = next(_stops)
    # Frames only: the message of an exception may quote the text under capture.
    log.warning("ragtrace: %s failed with %s and was skipped", where, type(exc).__name__)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("ragtrace: raised at\n%s", "".join(traceback.format_tb(exc.__traceback__)))
