"""What the documents say holds: links lead somewhere, targets and dependencies exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from tests.docs.blocks import DOCUMENTS, ROOT

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


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in links(document):
            file, _, anchor = target.partition("#")
            aim = document.parent / file if file else document
            assert aim.exists(), f"{document} links to {target}"
            assert not anchor or anchor in anchors(aim), f"{document} links to {target}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", document.read_text(), re.MULTILINE))
        assert named <= targets, document


def test_every_dependency_has_its_reason() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    groups = pyproject["dependency-groups"]
    lines = project["dependencies"] + extras + groups["dev"]
    declared = {Requirement(line).name for line in lines} - {project["name"]}
    tables = re.findall(r"^\| (`.+?) \|", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
    assert {name for cell in tables for name in re.findall(r"`([\w.-]+)`", cell)} == declared
