"""The fenced blocks of the documents, and what the line before each says of how it is tested.

    <!-- test: python -->                     it runs, and records no answer
    <!-- test: python verdict=fail -->        it runs, and what it records gets this verdict
    <!-- test: python reason=no_content -->   … or none, for this reason
    <!-- test: run says="0.83, pass" -->      its commands run and print these words; often, if need be
    <!-- test: run exit=1 until="ready" -->   … end with this code; are interrupted once these words are there
    <!-- test: no: it needs a cluster -->     it is not run, and why

`around=NAME` puts a block of Python that is part of a program where `tests/docs/around/NAME.py` has the line
`# the block`; `in=checkout` runs commands in the checkout.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["BLOCKS", "DOCUMENTS", "ROOT", "Block"]

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = tuple(
    sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
)
_PYTHON: Final = {"python", "py"}
_SHELL: Final = {"sh", "bash", "shell", "console"}
_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_MARKER: Final = re.compile(r"^ *<!-- test: ([^\n]*) -->\n\Z", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block, and what stands before it."""

    document: Path
    number: int
    """In its document, among the blocks of Python and shell."""
    language: str
    text: str
    marker: str | None

    @property
    def id(self) -> str:
        """Where it is."""
        return f"{self.document.relative_to(ROOT)}-{self.number}"

    @property
    def is_python(self) -> bool:
        return self.language in _PYTHON

    @property
    def how(self) -> str:
        """``python``, ``run``, ``no``, or nothing."""
        return re.match(r"\w*", self.marker or "")[0]  # type: ignore[index]

    @property
    def reason(self) -> str:
        """Why it is not run."""
        return (self.marker or "").partition(":")[2].strip() if self.how == "no" else ""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """What the marker says of how it runs."""
        words = shlex.split(self.marker or "")[1:] if self.how in ("python", "run") else []
        return tuple((word.partition("=")[0], word.partition("=")[2]) for word in words)

    def option(self, name: str) -> str | None:
        """Return what the marker says under a name."""
        return dict(self.options).get(name)

    def all(self, name: str) -> tuple[str, ...]:
        """Return everything that the marker says under a name."""
        return tuple(value for key, value in self.options if key == name)


def _blocks(document: Path) -> Iterator[Block]:
    text = document.read_text("utf-8")
    fences = [fence for fence in _FENCE.finditer(text) if fence[2] in _PYTHON | _SHELL]
    for number, fence in enumerate(fences):
        marker = _MARKER.search(text[: fence.start()])
        yield Block(
            document=document,
            number=number,
            language=fence[2],
            text=fence[3],
            marker=marker and marker[1],
        )


BLOCKS: Final = tuple(block for document in DOCUMENTS for block in _blocks(document))
