"""A mutant: one promise, broken on purpose, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DoesNotApply", "Mutant"]


class DoesNotApply(Exception):
    """The text that a mutant replaces does not stand in its file, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A small change to the product, after which a named test must fail."""

    promise: str
    """What it is about, in a word or two: mutants of one promise stand together in the table."""
    breaks: str
    """What it breaks, in the words of the table. It is the mutant's name, and no two share one."""
    file: str
    """What it changes, from the root of the checkout."""
    old: str
    """A text that stands there once."""
    new: str
    tests: tuple[str, ...]
    """Files or tests, as pytest takes them: one of them must fail."""
    is_slow: bool = False
    """Whether it takes more than 15 seconds: then CI leaves it out."""
    hangs: bool = False
    """Whether its test notices by what never comes: else a test that ran out of patience shows nothing."""

    def applied_to(self, text: str) -> str:
        """Return the file's text with the change.

        Raises:
            DoesNotApply: the product has changed since the mutant was written.
        """
        number = text.count(self.old)
        if number != 1:
            raise DoesNotApply(
                f"mutant {self.breaks!r}: the text that it replaces stands {number} times in {self.file},"
                f" and must stand once: {self.old!r}"
            )
        return text.replace(self.old, self.new)

    def check(self, root: Path) -> None:
        """See that it applies to a checkout, and that its tests are there.

        Raises:
            DoesNotApply: it does not.
        """
        self.applied_to((root / self.file).read_text("utf-8"))
        for test in self.tests:
            file, _, name = test.partition("[")[0].partition("::")
            if not (root / file).is_file() or f"def {name}" not in (root / file).read_text("utf-8"):
                raise DoesNotApply(f"mutant {self.breaks!r}: there is no test {test}")
