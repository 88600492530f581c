"""The judge `nli` in the program and in the collector, and a model from a hub."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.cli.program import COMMAND
from tests.integration.judge.model_hub import model_hub
from tests.patience import PATIENCE_S
from tests.tiny_verifiers import Verifier

pytestmark = pytest.mark.slow

NAME = "org/tiny-verifier"


def evaluate(folder: Path, judge: str, **environ: str) -> subprocess.CompletedProcess[str]:
    row = {
        "question": "How long?",
        "contexts": ["Refunds take 14 days."],
        "answer": "Refunds take 14 days. Refunds take 30 days.",
    }
    records = folder / "records.jsonl"
    records.write_text(json.dumps(row))
    return subprocess.run(
        [*COMMAND, "evaluate", str(records), "--judge", judge, "--json"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_model_of_the_hub_is_downloaded_once_and_only_the_files_it_needs(tmp_path: Path) -> None:
    folder = Verifier().write(tmp_path / "there", file="onnx/model.onnx")
    Verifier().write(folder, file="onnx/model_fp16.onnx")
    (folder / "pytorch_model.bin").write_bytes(b"large")
    cache = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    with model_hub(NAME, folder) as (url, taken):
        first = evaluate(tmp_path, f"nli:{NAME}", HF_ENDPOINT=url, **cache)
    assert first.returncode == 0, first.stderr
    assert f"judge: nli ({NAME})" in first.stderr
    assert sorted(taken) == ["config.json", "onnx/model.onnx", "tokenizer.json"]
    again = evaluate(tmp_path, f"nli:{NAME}", HF_ENDPOINT=url, **cache)  # the hub is gone
    assert again.returncode == 0, again.stderr


def test_a_model_that_the_hub_lacks(tmp_path: Path) -> None:
    folder = Verifier().write(tmp_path / "there")
    with model_hub(NAME, folder) as (url, _):
        found = evaluate(tmp_path, "nli:org/other", HF_ENDPOINT=url, HF_HOME=str(tmp_path / "cache"))
    assert found.returncode != 0
    assert "'org/other' is not a folder here, and cannot be downloaded from the hub" in found.stderr
    assert "Traceback" not in found.stderr
