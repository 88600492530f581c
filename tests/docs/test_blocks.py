"""Every block of Python and shell in the documents does what its marker says, or says why it is not run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.process import eventually
from tests.docs.blocks import BLOCKS, ROOT, Block
from tests.docs.stand_ins import Place
from tests.patience import PATIENCE_S

AROUND = Path(__file__).parent / "around"
PYTHON = [pytest.param(block, id=block.id) for block in BLOCKS if block.how == "python"]
SHELL = [pytest.param(block, id=block.id) for block in BLOCKS if block.how == "run"]
KNOWN = {"python": {"verdict", "reason", "around"}, "run": {"says", "exit", "until", "in"}}
JUDGES = re.compile(r"\bragtrace (evaluate|backfill|rejudge|calibrate)\b")


def test_every_block_runs_or_says_why_not() -> None:
    for block in BLOCKS:
        if block.how == "no":
            told = f"{block.id}: say why it is not run: <!-- test: no: it needs a cluster -->"
            assert len(block.reason.split()) >= 3, told
            continue
        wanted = "python" if block.is_python else "run"
        told = f"{block.id}: put <!-- test: {wanted} --> or <!-- test: no: why --> before it"
        assert block.how == wanted, told
        assert {name for name, _ in block.options} <= KNOWN[wanted], block.id


def test_commands_that_judge_say_what_comes_out() -> None:
    for block in BLOCKS:
        if block.how == "run" and JUDGES.search(block.text):
            checked = block.all("says") or block.option("until") or re.search(r"\|\s+grep ", block.text)
            assert checked, f'{block.id}: name words that they print: says="…"'


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON)
def test_python_ends_in_its_verdict(block: Block, place: Place, tmp_path: Path) -> None:
    with running_receiver() as receiver:
        run_python(block, place, receiver, tmp_path)
        ends = place.outcomes(receiver)
    expected = block.option("verdict") or block.option("reason")
    assert ends == ([expected] if expected else []), "say in the marker what becomes of what it records"


@pytest.mark.slow
@pytest.mark.parametrize("block", SHELL)
def test_commands_do_what_they_say(block: Block, place: Place, tmp_path: Path) -> None:
    folder = ROOT
    if block.option("in") != "checkout":
        folder = tmp_path / "reader"
        shutil.copytree(place.folder, folder, symlinks=True)
    commands = re.sub(r"^\$ ", "", place.with_addresses(block.text), flags=re.MULTILINE)
    until = block.option("until")
    if until is not None:
        assert until in interrupted_at(until, commands, place, folder)
        return
    run = place.run(commands, folder=folder)
    said = " ".join((run.stdout + run.stderr).split())
    assert run.returncode == int(block.option("exit") or 0), said[-4_000:]
    missing = [words for words in block.all("says") if words not in said]
    assert not missing, said[-4_000:]


def run_python(block: Block, place: Place, receiver: OtlpReceiver, folder: Path) -> None:
    program, around = block.text, block.option("around")
    if around is not None:
        frame = (AROUND / f"{around}.py").read_text("utf-8")
        program = re.sub(
            r"^( *)# the block$",
            lambda found: re.sub(r"^(?=.)", found[1], block.text, flags=re.MULTILINE),
            frame,
            flags=re.MULTILINE,
        )
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.replace("localhost:4327", receiver.endpoint)],
        cwd=folder,
        env=place.environment(folder) | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.endpoint}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr


def interrupted_at(words: str, commands: str, place: Place, folder: Path) -> str:
    """Run commands until they said these words, end them as Ctrl-C does, and return what they said."""
    log = folder / "said.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env=place.environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )

    def has_said_it() -> bool:
        return words in log.read_text() or process.poll() is not None

    try:
        eventually(has_said_it, what=words)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE_S)
    return log.read_text()
