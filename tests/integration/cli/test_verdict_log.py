"""`telemetry.verdict_log`: a line of JSON for each judged answer, among the collector's other lines."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.cli.program import start
from tests.integration.collector.running import PROTOBUF, request_of
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

_ANSWERS = 12  # more than the lines a minute that other events have


def _config(folder: Path) -> Path:
    file = folder / "collector.yaml"
    settings = {
        "receive": {"grpc": None, "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "50ms"},
        "judge": {"use": "scripted"},
        "export": [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}],
        "store": {"path": str(folder / "store.db")},
        "telemetry": {"listen": None, "verdict_log": True},
        "log_level": "error",
    }
    file.write_text(json.dumps(settings), "utf-8")
    return file


def _verdicts(process: subprocess.Popen[bytes], count: int) -> list[dict[str, Any]]:
    assert process.stderr
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = process.stderr.readline()
        assert line, found
        if line.startswith(b"{"):
            found.append(json.loads(line))
    return found


@pytest.mark.slow
async def test_each_judged_answer_is_one_line_without_content_whatever_the_level(tmp_path: Path) -> None:
    process = start("collector", "--config", str(_config(tmp_path)), "--json")
    assert process.stdout
    try:
        port = json.loads(await asyncio.to_thread(process.stdout.readline))["http_port"]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            for number in range(_ANSWERS):
                spans = rag_trace(number, answer="Refunds take 99 years.")
                await client.post("/v1/traces", content=request_of(*spans), headers=PROTOBUF)
        verdicts = await asyncio.wait_for(asyncio.to_thread(_verdicts, process, _ANSWERS), PATIENCE_S)
    finally:
        process.terminate()
        rest = (await asyncio.to_thread(process.communicate, timeout=PATIENCE_S))[1]
    assert {line["trace_id"] for line in verdicts} == {trace_id_of(number) for number in range(_ANSWERS)}
    for line in verdicts:
        told = line["attributes"]
        assert (line["event_name"], told["service"]) == ("answer_judged", "shop")
        assert (told["label"], told["metrics"]["faithfulness"]["label"]) == ("fail", "fail")
        assert told["claims_unsupported"] + told["claims_contradicted"] == 1
    assert b"99 years" not in json.dumps(verdicts).encode() + rest
