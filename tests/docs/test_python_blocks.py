"""Python blocks of the documents that are marked run as they stand, with nobody listening."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^<!-- test: python -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[object]:
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))):
        for number, block in enumerate(BLOCK.findall(document.read_text("utf-8"))):
            yield pytest.param(block, id=f"{document.relative_to(ROOT)}-{number}")


@pytest.mark.slow
@pytest.mark.parametrize("block", list(blocks()))
def test_marked_python_runs(block: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr
