"""The condition of a rule on one value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from ragtrace.model import AttributeValue

Scalar: TypeAlias = str | bool | int | float

_MOST_CHARS: Final = 1_024
"""Characters of a text in which a pattern is searched; the text is untrusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTest:
    """Holds for a value that satisfies all set conditions; without conditions, for every existing value."""

    one_of: tuple[Scalar, ...] = ()
    matches: re.Pattern[str] | None = None
    """A pattern in the first 1,024 characters of a text."""
    above: float | None = None
    below: float | None = None

    def holds(self, value: AttributeValue) -> bool:
        """Return whether the value, or one element of an array, satisfies the conditions."""
        if isinstance(value, tuple):
            return any(self.holds(element) for element in value)
        return value is not None and self._is_listed(value) and self._is_matched(value) and self._fits(value)

    def _is_listed(self, value: AttributeValue) -> bool:
        # in Python 1 == True, but an attribute with the value 1 is not a flag
        same_kind = (
            allowed for allowed in self.one_of if isinstance(allowed, bool) == isinstance(value, bool)
        )
        return not self.one_of or any(allowed == value for allowed in same_kind)

    def _is_matched(self, value: AttributeValue) -> bool:
        if self.matches is None:
            return True
        return isinstance(value, str) and self.matches.search(value[:_MOST_CHARS]) is not None

    def _fits(self, value: AttributeValue) -> bool:
        if self.above is None and self.below is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)
