"""The condition of a rule on one value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ragtrace.model import AttributeValue

Scalar: TypeAlias = str | bool | int | float

_MOST_CHARS: Final = 1_024
"""Characters of a text in which a pattern is searched; the text is untrusted."""
_BOUND: Final = re.compile(r"([<>])\s*(-?\d+(?:\.\d+)?)")


class Bound(NamedTuple):
    """A number that others are above or below."""

    number: float
    is_lowest: bool


@dataclass(frozen=True, slots=True)
class ValueTest:
    """Holds for a value that is one of these, or as one of these says; without any, for every value there is.

    A pattern is searched in the first 1,024 characters of a text.
    """

    any_of: tuple[Scalar | re.Pattern[str] | Bound, ...] = ()

    @classmethod
    def written(cls, values: Sequence[Scalar]) -> ValueTest:
        """Read ``"/PATTERN/"``, ``"> N"`` and ``"< N"``; ``"*"`` is any value, and others are themselves.

        Raises:
            ValueError: a pattern is no regular expression.
        """
        return cls() if "*" in values else cls(tuple(_read(each) for each in values))

    def holds(self, value: AttributeValue) -> bool:
        """Return whether the value, or one element of an array, is as it should be."""
        if isinstance(value, tuple):
            return any(self.holds(element) for element in value)
        return value is not None and (not self.any_of or any(_fits(value, each) for each in self.any_of))


def _read(written: Scalar) -> Scalar | re.Pattern[str] | Bound:
    if not isinstance(written, str):
        return written
    if bound := _BOUND.fullmatch(written):
        return Bound(float(bound[2]), is_lowest=bound[1] == ">")
    if len(written) > 1 and written[0] == written[-1] == "/":
        try:
            return re.compile(written[1:-1])
        except re.error as exc:
            raise ValueError(f"{written!r} is no regular expression: {exc}") from exc
    return written


def _fits(value: AttributeValue, wanted: Scalar | re.Pattern[str] | Bound) -> bool:
    if isinstance(wanted, re.Pattern):
        return isinstance(value, str) and wanted.search(value[:_MOST_CHARS]) is not None
    # in Python 1 == True, but an attribute with the value 1 is not a flag
    if isinstance(wanted, Bound):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return value > wanted.number if wanted.is_lowest else value < wanted.number
    return isinstance(wanted, bool) == isinstance(value, bool) and wanted == value
