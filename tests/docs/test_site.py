"""The docs site: its navigation has every page, and an old page name leads on, on the site and on a forge."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
MOVED = {
    "adr/0013-batches-are-found-again-by-digest.md": "adr/0011-batches-are-found-again-by-digest.md",
    "security-of-the-judge.md": "prompt-injection.md",
    "what-works.md": "compatibility.md",
}
PAGES = """
    answer-index backfill blame budget calibration capture cli collector compatibility conventions
    conversations dependencies drift feedback glossary grafana index instrumentation judges kafka ledger logs
    metrics/README metrics/answer_relevance metrics/chunk_precision metrics/context_precision
    metrics/context_recall metrics/context_relevance metrics/faithfulness metrics/groundedness
    metrics/hallucination metrics/question_similarity metrics/rag_score migrating operations performance
    plugins privacy prompt-injection rejudge report runbook sampling scale score-metrics security
    security-of-the-judge slo spans ui what-works
""".split()  # noqa: SIM905 -- a list of words
"""Every name that a page ever had. A page that gets another name keeps a stub under the old one."""


class _Loader(yaml.SafeLoader):
    """Reads `mkdocs.yml`, in which a tag names a function."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_name_that_ever_was_leads_to_a_page(page: str) -> None:
    assert (DOCS / f"{page}.md").is_file()


def test_no_page_is_missing_from_the_list_of_names() -> None:
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if not page.startswith("adr/")} == set(PAGES)


def test_old_page_names_lead_on() -> None:
    [redirects] = [each["redirects"] for each in SITE["plugins"] if isinstance(each, dict)]
    assert redirects["redirect_maps"] == MOVED
    for old, new in MOVED.items():
        assert f"]({Path(new).name})" in (DOCS / old).read_text()
        assert f"/{old}" in SITE["exclude_docs"]


def test_a_link_out_of_the_documents_leads_to_the_repository() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="metrics/README.md"))
    config = SimpleNamespace(repo_url="https://forge.example/r")

    def led(text: str) -> str:
        return str(hooks.on_page_markdown(text, page=page, config=config))

    assert led("[a](../judges.md)") == "[a](../judges.md)"
    assert led("[a](../../README.md#b)") == "[a](https://forge.example/r/blob/main/README.md#b)"
    assert led("[a](../../examples/deploy)") == "[a](https://forge.example/r/tree/main/examples/deploy)"
    with pytest.raises(FileNotFoundError):
        led("[a](../../nothing.md)")
