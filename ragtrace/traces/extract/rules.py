"""What a user can say about the application's own spans."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_RULES", "Rules"]

_RETRIEVAL_TOOLS = re.compile(
    r"retriev|search|look_?up|find_?(doc|article|passage|chunk)|knowledge|vector|\brag\b|_rag|rag_"
    r"|(get|fetch|query|read)_?(doc|context|passage|chunk|article|kb|index|faq|engine|corpus)|query_engine",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How to read spans where no convention decides."""

    retrieval_tools: re.Pattern[str] = _RETRIEVAL_TOOLS
    """Searched for in the name of a tool: what such a tool returned is what the answer was made of."""


DEFAULT_RULES: Final = Rules()
