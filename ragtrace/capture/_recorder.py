"""What the span helpers record with: nothing before ``instrument()`` and after ``uninstrument()``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragtrace.capture._guard import forget_told

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from ragtrace.capture.privacy.policy import ContentPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """A tracer and the policy for what it may record."""

    tracer: Tracer
    policy: ContentPolicy


_active: Recorder | None = None


def active() -> Recorder | None:
    """Return the recorder in use, or ``None``: then the helpers do nothing at all."""
    return _active


def activate(recorder: Recorder | None) -> None:
    """Use this recorder from now on."""
    global _active
    forget_told()
    _active = recorder
