"""A run that is given up in the middle of its writing closes its files without a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE_S

GIVE_UP = """
import asyncio, sys
from pathlib import Path
from ragtrace.backfill.progress import Progress
from ragtrace.model import JudgeIdentity
from ragtrace.transcripts import Transcripts
from ragtrace.transcripts import TranscriptReply

async def keep(transcripts, number):
    who = JudgeIdentity(provider="p", model="m")
    said = TranscriptReply(body=b"x" * 1000, usage=b"{}")
    await transcripts.keep_said(bytes([number]), said, identity=who, step="verify", prompt="?" * 10_000)

async def given_up(folder):
    with Transcripts(folder / "judged.db") as transcripts, Progress(folder / "progress.db") as progress:
        writes = [keep(transcripts, number) for number in range(8)]
        writes += [progress.keep(str(number), "a", b"x" * 10_000) for number in range(8)]
        tasks = [asyncio.create_task(write) for write in writes]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

for number in range(100):
    asyncio.run(given_up(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_what_is_cancelled_while_it_writes_does_not_crash_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GIVE_UP, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (run.returncode, run.stderr) == (0, "")
