"""The docs site: its navigation has every page, and links out of the documents lead on."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"


class _Loader(yaml.SafeLoader):
    """Reads `mkdocs.yml`, in which a tag names a function."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)


def pages(nav: object) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else cast(list[object], nav):
            yield from pages(each)


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(pages(SITE["nav"])) == sorted(
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")
    )


@pytest.mark.parametrize("package", ["ragtrace", "collector/ragtrace_collector"])
def test_the_first_page_names_every_folder(package: str) -> None:
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    named = set(re.findall(r"`(\w+)/`", (DOCS / "index.md").read_text("utf-8")))
    assert folders <= named


def test_a_link_out_of_the_documents_leads_to_the_repository() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="adr/0017-one-middle.md"))
    config = SimpleNamespace(repo_url="https://forge.example/r")

    def led(text: str) -> str:
        return str(hooks.on_page_markdown(text, page=page, config=config))

    assert led("[a](../judges.md)") == "[a](../judges.md)"
    assert led("[a](../../README.md#b)") == "[a](https://forge.example/r/blob/main/README.md#b)"
    assert led("[a](../../examples/deploy)") == "[a](https://forge.example/r/tree/main/examples/deploy)"
    with pytest.raises(FileNotFoundError):
        led("[a](../../nothing.md)")
