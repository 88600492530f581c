"""When the judge is checked against labeled answers: the section ``drift``."""

from __future__ import annotations

from datetime import timedelta

from ragtrace_collector.config.budget import Amounts
from ragtrace_collector.config.values import Section, Timeout


class DriftConfig(Section):
    """The drift check: off without ``anchors``, since it asks the judge, which costs money."""

    anchors: str | None = None
    """A file of labeled answers, or ``builtin``."""
    every: Timeout = timedelta(hours=24)
    budget: Amounts = ()
    """What all checks of a UTC day may spend, apart from ``budget.live``."""
