"""Hooks of the docs site: a link that leaves `docs/` leads to the file in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(\]\(|src=\")((?:\.\./)+[^)#\"\s]+)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Let relative links to files outside `docs/` lead to the repository.

    Raises:
        FileNotFoundError: there is no such file.
    """
    place = Path("docs", page.file.src_uri).parent

    def lead(found: re.Match[str]) -> str:
        target = (ROOT / place / found[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return found[0]
        target.stat()
        name = target.relative_to(ROOT).as_posix()
        kind = "tree" if target.is_dir() else "blob"
        return found[1] + urljoin(f"{config.repo_url}/", f"{kind}/main/{name}")

    return _LINK.sub(lead, markdown)
