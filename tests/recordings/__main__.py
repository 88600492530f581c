"""Make the recordings under tests/data/recordings again: all, or those whose names hold a word.

python -m tests.recordings [WORD ...]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from tests.model_server import model_environment, running_model_server
from tests.recordings.scenarios import SCENARIOS, Scenario

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "recordings"
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
QUIET = {
    "ANONYMIZED_TELEMETRY": "false",
    "HAYSTACK_TELEMETRY_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "TRACELOOP_TELEMETRY": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
}
_SETTINGS = (
    *("LANGCHAIN_", "LANGFUSE_", "LANGSMITH_", "LOGFIRE_", "MLFLOW_", "OPENINFERENCE_", "OTEL_"),
    "RAGTRACE_",
)


def main(words: Sequence[str]) -> int:
    """Record in two processes at a time, and return how many failed."""
    wanted = [each for name, each in SCENARIOS.items() if not words or any(word in name for word in words)]
    with (
        running_model_server() as url,
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        paths = {packages: _installed(packages, folder) for packages in {each.packages for each in wanted}}
        batches = [list(batch) for _, batch in groupby(sorted(wanted, key=_batch), key=_batch)]
        failures = pool.map(lambda batch: _record(batch, url, paths[batch[0].packages]), batches)
        return sum(failures)


def _batch(scenario: Scenario) -> tuple[str, ...]:
    """Name those that one process can record: they import the same."""
    library = scenario.application.partition("-")[0]
    return (scenario.kind, scenario.instrumentation, library, *scenario.libraries, "", *scenario.packages)


def _installed(packages: tuple[str, ...], folder: str) -> str:
    """Install what only some recordings need, beside the environment, and return where."""
    if not packages:
        return ""
    target = mkdtemp(dir=folder)
    uv = shutil.which("uv")  # an environment that uv made has no pip
    pip = [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", target, *packages], check=True)
    return target


def _record(batch: Sequence[Scenario], url: str, path: str) -> int:
    ended = subprocess.run(
        [PYTHON, "-m", "tests.recordings.recorder", *(scenario.name for scenario in batch)],
        cwd=ROOT,
        env=_environment() | QUIET | model_environment(url) | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300 * len(batch),
        check=False,
    )
    recorded: dict[str, Any] = {}
    for line in ended.stdout.splitlines():
        if line.startswith('{"'):
            recorded |= json.loads(line)
    for scenario in batch:
        if scenario.name in recorded:
            write(scenario.name, recorded[scenario.name], folder=FOLDER / scenario.kind)
    failed = [scenario.name for scenario in batch if scenario.name not in recorded]
    if failed:
        print(f"failed: {', '.join(failed)}\n{ended.stderr}", file=sys.stderr)
    return len(failed)


def write(name: str, recording: Mapping[str, Any], *, folder: Path = FOLDER) -> None:
    """Write a recording: what people read line by line, the trace in one line; log records beside it."""
    head = json.dumps({part: recording[part] for part in ("about", "truth")}, indent=1, ensure_ascii=False)
    trace = json.dumps(recording["trace"], separators=(",", ":"), ensure_ascii=False)
    text = f'{head.removesuffix("}").rstrip()},\n "trace": {trace}\n}}\n'
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
    logs = [
        json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in recording.get("logs") or ()
    ]
    if logs:
        (folder / f"{name}.logs.jsonl").write_text("\n".join(logs) + "\n", encoding="utf-8")
    print(name, flush=True)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
