"""Every example on a real framework gets its verdict by one line."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ragtrace import semconv
from tests.acceptance.collector_process import RAGTRACE
from tests.stories.environments import ROOT, Environment
from tests.stories.place import Place, open_place
from tests.stories.table import EXAMPLES, WARRANTY, Start

PAGE = (EXAMPLES / "README.md").read_text("utf-8")
APPLICATIONS = re.findall(r"^\| `python examples/frameworks/(\w+)\.py`", PAGE, re.MULTILINE)
ANSWER = "The warranty on every lamp lasts 24 months."
CHUNK_IDS = ("warranty-length", "warranty-cover", "shipping-cost")
POINT_IDS = ("5", "6", "3")
"""The same in Qdrant, which takes no words for ids."""

pytestmark = pytest.mark.long


@dataclass(frozen=True, slots=True, kw_only=True)
class Frameworks(Environment):
    """The environment of all frameworks."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        return ROOT / ".venv-frameworks"


@pytest.fixture(scope="module")
def place(frameworks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with open_place(tmp_path_factory.mktemp("frameworks"), RAGTRACE) as opened:
        yield opened


def test_every_application_is_described() -> None:
    assert set(APPLICATIONS) == {file.stem for file in EXAMPLES.glob("*.py")} - {"corpus", "handbook"}


@pytest.mark.parametrize("application", APPLICATIONS)
def test_one_line_is_enough(place: Place, application: str) -> None:
    start = Start(
        name=application,
        program=EXAMPLES / f"{application}.py",
        environment=Frameworks(name="frameworks", requirements=()),
        question=WARRANTY,
        with_agent=False,
        route=None,
    )
    ran, seen = place.run(start, careless=False), place.see(start)
    corpus = runpy.run_path(str(EXAMPLES / "corpus.py"))["CHUNKS"]
    assert (seen.record.question, seen.record.answer, ran.answer) == (WARRANTY, ANSWER, ANSWER)
    assert tuple(chunk.text for chunk in seen.record.chunks) == tuple(corpus[name] for name in CHUNK_IDS)
    expected = POINT_IDS if application == "qdrant_app" else CHUNK_IDS
    assert tuple(chunk.id for chunk in seen.record.chunks) == expected
    model = "claude" if application == "anthropic_app" else "gpt-4.1-mini"
    assert str(seen.carrier.attributes[semconv.TARGET_MODEL]).startswith(model)
    assert seen.carrier.name == "evaluation pass"
    assert ANSWER in PAGE
