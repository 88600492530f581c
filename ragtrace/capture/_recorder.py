"""The recorder that the span helpers use; ``None`` before ``instrument()`` and after ``uninstrument()``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragtrace.capture._guard import forget_logged

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from ragtrace.capture.privacy.policy import ContentPolicy


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
