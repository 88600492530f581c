"""The README's path: every line pasted, up to a wrong claim of one's own on the page, without a back end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.backends.process import eventually
from tests.gullible_model import running_gullible_model
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
PAGE = "http://127.0.0.1:4330"


def test_a_newcomer_sees_her_wrong_claim_without_a_back_end(tmp_path: Path) -> None:
    (start,) = re.findall(r"```sh\n(export OPENAI_API_KEY.*?)```", README, re.DOTALL)
    (app,) = re.findall(r"```python\n(import ragtrace\n.*?)```", README, re.DOTALL)
    (look,) = re.findall(r"^ragtrace tail .*$", README, re.MULTILINE)
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "ragtrace").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ragtrace.cli "$@"\n')
    (tmp_path / "ragtrace").chmod(0o755)
    with running_gullible_model() as model:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "OPENAI_BASE_URL": model,
            "COLUMNS": "80",
        }
        with collector(start, tmp_path, environment) as log:
            assert "judge: openai:gpt-4o-mini; verdicts go to the store only" in log.read_text()
            ran = said(f'"{sys.executable}" app.py', tmp_path, environment)
            assert ran == ""  # nothing went wrong on the way to the collector
            eventually(lambda: "support-bot" in said(look, tmp_path, environment), what="the verdict")
            shown = said(look, tmp_path, environment)
            listed = httpx.get(f"{PAGE}/answers").text
            (answer,) = set(re.findall(r'href="(/answers/[0-9a-f]{32}/[0-9a-f]{16})', listed))
            page = httpx.get(f"{PAGE}{answer}").text
    assert re.search(r"contradicted +Refunds take 30 days", shown)
    marked = re.findall(r'<mark class="contradicted" data-claims[^>]*>(.*?)</mark>', page, re.DOTALL)
    said_wrong, evidence = (re.sub(r"<[^>]+>", "", each) for each in marked)
    assert (said_wrong, evidence) == ("Refunds take 30 days.", "Refunds take 14 days.")


@contextmanager
def collector(command: str, folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Run the README's command until the block ends; while its ports are taken on this machine, try again."""
    log = folder / "collector.log"

    def started() -> subprocess.Popen[bytes] | None:
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-euc", command.replace("=…", "=none").replace("\nragtrace", "\nexec ragtrace")],
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        while process.poll() is None:
            if "page of answers" in log.read_text():
                return process
            time.sleep(0.1)
        assert "the port is taken" in log.read_text(), log.read_text()
        return None

    process = eventually(started, what="the ports of the README")
    try:
        yield log
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def said(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command to its end and return all that it printed."""
    run = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return run.stdout
