"""The judge `nli` in the program and in the collector, and a model from a hub."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.cli.program import COMMAND
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.judge.model_hub import model_hub
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace
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


def test_the_program_evaluates_by_a_folder(tmp_path: Path) -> None:
    found = evaluate(tmp_path, f"nli:{Verifier().write(tmp_path / 'verifier')}?threads=1")
    assert found.returncode == 0, found.stderr
    assert "judge: nli (verifier)" in found.stderr
    result = json.loads(found.stdout)
    assert [verdict["label"] for verdict in result["verdicts"]] == ["supported", "unsupported"]


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


async def test_the_collector_judges_by_a_folder_and_names_it_on_the_carrier(tmp_path: Path) -> None:
    folder = Verifier().write(tmp_path / "verifier")
    config = config_of(tmp_path, judge={"use": f"nli:{folder}?threads=1"})
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0, answer="Refunds take 14 days.")))
        [carrier] = await until(lambda: carriers_in(tmp_path / "out.jsonl"))
    assert carrier.attributes["ragtrace.judge.provider"] == "nli"
    assert carrier.attributes["ragtrace.judge.model"] == "verifier"
