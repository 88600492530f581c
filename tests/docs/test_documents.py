"""What the documents say holds: links lead somewhere, targets and dependencies exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.blocks import DOCUMENTS, ROOT

BY_NAME = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def links(document: Path) -> Iterator[str]:
    """The relative links of a document, outside its code blocks."""
    prose = FENCE.sub("", document.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def anchors(document: Path) -> set[str]:
    """The anchors that a forge makes of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", BY_NAME)
def test_links_lead_somewhere(document: Path) -> None:
    for target in links(document):
        file, _, anchor = target.partition("#")
        aim = document.parent / file if file else document
        assert aim.exists(), f"{document.name} links to {target}"
        assert not anchor or anchor in anchors(aim), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", BY_NAME)
def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", document.read_text(), re.MULTILINE))
    assert named <= targets


def test_every_dependency_has_its_reason() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    groups = pyproject["dependency-groups"]
    lines = project["dependencies"] + extras + groups["dev"]
    declared = {Requirement(line).name for line in lines} - {project["name"]}
    tables = re.findall(r"^\| (`.+?) \|", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
    assert {name for cell in tables for name in re.findall(r"`([\w.-]+)`", cell)} == declared
