"""The first token of a real client is passed on at once, by whatever instruments it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

SCRIPT = Path(__file__).with_name("apps") / "openai_first_token.py"
ANSWER = "Two years, says Ada."


@pytest.mark.slow
def test_the_first_token_of_an_openai_stream_does_not_wait_for_the_second(frameworks: Path) -> None:
    ended = subprocess.run(
        [frameworks, SCRIPT],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env={"HOME": "/"},
    )
    read, recorded, spans = json.loads(ended.stdout)
    assert read == recorded == ANSWER
    assert spans == 2  # the call, and the chat that the instrumentor records
