"""Record Vercel's AI SDK, of today and before its own OpenTelemetry package. Needs Node and npm.

python -m tests.recordings.vercel
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.model_server import model_environment, running_model_server
from tests.recordings.__main__ import ROOT, write
from tests.recordings.otlp_stub import running_otlp_stub

sys.path.insert(0, str(ROOT / "examples" / "frameworks"))

_OPENTELEMETRY = {
    "@opentelemetry/api": "1.9.1",
    "@opentelemetry/exporter-trace-otlp-http": "0.223.1",
    "@opentelemetry/resources": "2.12.1",
    "@opentelemetry/sdk-trace-node": "2.12.0",
    "zod": "4.6.7",
}
VERSIONS = {
    "vercel": {"ai": "7.0.173", "@ai-sdk/otel": "1.0.173", "@ai-sdk/openai-compatible": "2.0.87"},
    "vercel-legacy": {"ai": "5.0.277", "@ai-sdk/openai-compatible": "1.0.61"},
}


def main() -> None:
    """Install each version in a folder of its own, and record it there."""
    for name, versions in VERSIONS.items():
        with TemporaryDirectory() as folder:
            _install(Path(folder), versions | _OPENTELEMETRY)
            for how in ("generate", "stream"):
                write(f"{name}.{how}", _record(Path(folder), how, instrumentation=name, versions=versions))


def _install(folder: Path, versions: Mapping[str, str]) -> None:
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": versions}))
    shutil.copy(Path(__file__).with_name("ask.mjs"), folder)
    subprocess.run(["npm", "install", "--no-fund", "--no-audit", "--silent"], cwd=folder, check=True)


def _record(folder: Path, how: str, *, instrumentation: str, versions: Mapping[str, str]) -> dict[str, Any]:
    from corpus import CHUNKS

    from ragtrace.traces import otlp

    with running_model_server() as url, running_otlp_stub() as stub:
        truth = subprocess.run(
            ["node", "ask.mjs", how],
            cwd=folder,
            env=os.environ | model_environment(url) | {"OTLP_URL": stub.url},
            input=json.dumps(CHUNKS),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        sent = json.loads(otlp.request_to_json(stub.spans_since(0)))
    about = {
        "instrumentation": instrumentation,
        "libraries": ["ai"],
        "application": how,
        "environment": {},
        "shows": "a tool retrieves",
        "versions": dict(versions),
    }
    return {"about": about, "truth": json.loads(truth), "trace": sent}


if __name__ == "__main__":
    main()
