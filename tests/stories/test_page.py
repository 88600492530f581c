"""docs/compatibility.md is made from the table of stories.

``REGENERATE_GOLDEN=1 make test ARGS=tests/stories/test_page.py`` writes it again.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.stories.environments import ROOT
from tests.stories.table import APPS, JUDGED, TOLD, Judged, Told

PAGE = ROOT / "docs" / "compatibility.md"
REGENERATE = "REGENERATE_GOLDEN"
JUDGED_PART = re.compile(r"(?<=<!-- judged: begin -->\n).*(?=<!-- judged: end -->)", re.DOTALL)
TOLD_PART = re.compile(r"(?<=<!-- told: begin -->\n).*(?=<!-- told: end -->)", re.DOTALL)
MARKS = ("instrument", "rag", "retrieval", "generation")
"""What a reader adds, in the order of the page."""


def judged_rows() -> Iterator[Sequence[str]]:
    yield ("you use", "streams", "install", "add to your code", "ragtrace sees", "on the trace")
    for story in JUDGED:
        yield (
            f"[{story.uses}]({os.path.relpath(story.start.program, PAGE.parent)})",
            "yes" if story.streams else "",
            f"`{story.start.environment.command}`",
            added_to(story),
            seen_in(story),
            f"`{story.span}`: {story.claim}",
        )


def told_rows() -> Iterator[Sequence[str]]:
    yield ("what is missing", "install", "said on stderr", "said by `ragtrace why`")
    for story in TOLD:
        said = f"“{' … '.join(story.says)}”"
        where = (said, "") if story.on_stderr else ("", said)
        yield (story.situation, f"`{story.start.environment.command}`", *where)


def added_to(story: Judged) -> str:
    """Name what the program uses of ragtrace, as its source says."""
    used = {name for file in (story.start.program, *story.beside) for name in names_of_ragtrace(file)}
    return ", ".join(f"`{mark}`" for mark in MARKS if mark in used) or "nothing"


def names_of_ragtrace(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "ragtrace"
        ):
            yield node.attr


def seen_in(story: Judged) -> str:
    chunks = "1 chunk" if story.chunks == 1 else f"{story.chunks} chunks"
    return f"question, {chunks}{' of the prompt' if story.from_prompt else ''}, answer"


def table(rows: Iterable[Sequence[str]]) -> str:
    head, *others = rows
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *others))


@pytest.mark.parametrize(("part", "rows"), [(JUDGED_PART, judged_rows), (TOLD_PART, told_rows)])
def test_the_page_says_what_the_stories_show(
    part: re.Pattern[str], rows: Callable[[], Iterable[Sequence[str]]]
) -> None:
    written = table(rows())
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        PAGE.write_text(part.sub(lambda _: written, PAGE.read_text("utf-8")), "utf-8")
    assert part.findall(PAGE.read_text("utf-8")) == [written], (
        f"run once with {REGENERATE}=1 if this is meant"
    )


def test_every_program_has_a_story() -> None:
    told: Sequence[Judged | Told] = (*JUDGED, *TOLD)
    assert set(APPS.glob("*.py")) <= {story.start.program for story in told}
