"""The wheel without an extra, in a clean environment: each command works, or says at once what to install."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from ragtrace.cli.app import cli
from ragtrace.traces.otlp import encode_json
from tests.rag_spans import rag_trace
from tests.wheel import build_wheel, clean_environment, install

pytestmark = pytest.mark.slow

RECORD = {
    "question": "How long do refunds take?",
    "contexts": ["Refunds take 14 days."],
    "answer": "Refunds take 30 days.",
}
LABELED = {
    **RECORD,
    "claims": [
        {"text": "Refunds take 30 days.", "label": "contradicted"},
        {"text": "Refunds take 14 days.", "label": "supported"},
    ],
}

WORKS: dict[str, Sequence[str]] = {
    "evaluate": ["records.jsonl", "--judge", "lexical", "--out", "report.html"],
    "explain": ["traces.jsonl"],
    "backfill": [
        *("--from", "otlp-file:traces.jsonl", "--to", "otlp-file:scores.jsonl", "--judge", "lexical"),
        *("--transcripts", "old.db"),
    ],
    "report": ["--from", "traces.jsonl"],
    "doctor": ["--judge", "lexical"],
    "rejudge": ["--transcripts", "old.db"],
    "compare": ["old.db", "new.db"],
}
"""What the core alone can do."""

NEEDS_NUMPY: dict[str, Sequence[str]] = {"calibrate": ["labeled.jsonl", "--judge", "lexical"]}
NEEDS_THE_COLLECTOR: dict[str, Sequence[str]] = {
    "demo": [],
    "collector": ["--print-config"],
    "why": ["5b8efff798038103d269b633813fc60c"],
    "ledger": [],
    "drift": ["status", "--config", "collector.yaml"],
    "ui": ["--from", "traces.jsonl"],
    "tail": ["--from", "traces.jsonl", "--no-follow"],
    "export-records": [],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_environment(tmp_path_factory.mktemp("core") / "venv", wheel)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with something for each command."""
    (tmp_path / "records.jsonl").write_text(json.dumps(RECORD) + "\n")
    (tmp_path / "labeled.jsonl").write_text(json.dumps(LABELED) + "\n")
    (tmp_path / "traces.jsonl").write_text(encode_json(rag_trace(0)) + "\n")
    (tmp_path / "collector.yaml").write_text("{}\n")
    return tmp_path


def ragtrace(core: Path, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "OPENAI_", "PYTHON"))
    }
    return subprocess.run(
        [core / "ragtrace", *args],
        cwd=folder,
        env={**env, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_command_is_tried() -> None:
    assert {*WORKS, *NEEDS_NUMPY, *NEEDS_THE_COLLECTOR} == {*cli.list_commands(click.Context(cli))}


def test_the_core_brings_neither_an_extra_nor_what_develops_it(core: Path) -> None:
    (site,) = core.parent.glob("lib/python*/site-packages")
    installed = {path.name for path in site.iterdir()}
    assert {"rich", "jinja2", "click", "openai", "aiohttp"} <= installed
    assert not {"yaml", "starlette", "uvicorn", "anthropic", "numpy", "pytest"} & installed


def test_the_commands_of_the_core_work(core: Path, folder: Path) -> None:
    for command, options in WORKS.items():
        done = ragtrace(core, folder, command, *options)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout, command
        assert "is not installed" not in done.stderr, command
        if command == "backfill":
            shutil.copy(folder / "old.db", folder / "new.db")
    assert "Refunds take 30 days" in (folder / "report.html").read_text()


def test_a_command_of_the_collector_says_at_once_what_to_install(
    core: Path, wheel: Path, folder: Path
) -> None:
    for command, options in NEEDS_THE_COLLECTOR.items():
        done = ragtrace(core, folder, command, *options)
        assert (done.returncode, done.stdout) == (2, ""), (command, done.stderr)
        assert "Traceback" not in done.stderr
        assert f"which is not installed: pip install '{wheel}[collector]'" in done.stderr, command


def test_an_option_says_which_extra_it_needs(
    core: Path, wheel: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    for extra, args in {
        "anthropic": ["evaluate", "records.jsonl", "--judge", "anthropic:claude"],
        "parquet": ["evaluate", "records.jsonl", "--judge", "lexical", "--out", "report.parquet"],
        "calibrate": ["calibrate", *NEEDS_NUMPY["calibrate"]],
        "collector": ["explain", "traces.jsonl", "--config", "collector.yaml"],
    }.items():
        done = ragtrace(core, folder, *args)
        assert (done.returncode, done.stdout) == (2, ""), (extra, done.stderr)
        assert f"pip install '{wheel}[{extra}]'" in done.stderr


def test_the_command_of_the_hint_is_one_that_can_be_run(core: Path, folder: Path) -> None:
    done = ragtrace(core, folder, "collector")
    (hint,) = re.findall(r"which is not installed: (.*)", done.stderr)
    command = shlex.split(hint)
    assert command[:2] == ["pip", "install"]
    install(core, *command[2:])
