"""Secrets: whatever goes wrong or right, none stands in anything that the program says."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import encode
from ragtrace_collector.config import parse_config
from ragtrace_collector.service.check import check_config
from tests.acceptance.collector_process import collector_process
from tests.backends.process import eventually
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

EXPORT_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SECRET = "sk-PLANTED-9f2c"
EXPORT = "export: [{endpoint: 'http://localhost:4317'}]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"judge: {{api_key_env: {SECRET}}}\n" + EXPORT,
        f"judge: {{second: {{use: a, api_key_env: {SECRET}}}}}\n" + EXPORT,
        f"judge: {{api_key: [{SECRET}]}}\n" + EXPORT,
        f"judge: {{base_url: 'ftp://me:{SECRET}@host'}}\n" + EXPORT,
        f"export: [{{endpoint: 'http://me:{SECRET}@localhost:4317'}}]",
        f"export: [{{endpoint: 'http://localhost:4318/v1/traces?key={SECRET}'}}]",
        f"export: [{{endpoint: 'nowhere://x?{SECRET}'}}]",
        f"export: [{{endpoint: 'http://me:{SECRET}@127.0.0.1:4327'}}]",
        f"export: [{{endpoint: a:1, headers: {{authorization: ['{SECRET}']}}}}]",
        f'export: [{{endpoint: a:1, headers: {{authorization: "{SECRET}\\n"}}}}]',
        f"export: [{{endpoint: a:1, headers: '{SECRET}'}}]",
        f"receive: {{tokens: [{{name: a, sha256: {SECRET}}}]}}\n" + EXPORT,
        f"receive: {{tokens: {SECRET}}}\n" + EXPORT,
        f"store: {{encryption_keys: [{SECRET}]}}\n" + EXPORT,
        f"store: {{encryption_keys: {SECRET}}}\n" + EXPORT,
        f"a: b: {SECRET}\n" + EXPORT,
        f"judge: {{api_key: *{SECRET}}}\n" + EXPORT,
        f"judge: {{api_key: !{SECRET} x}}\n" + EXPORT,
        f"judge: {{api_key: '{SECRET}\n" + EXPORT,
        f'judge: {{api_key: "\\{SECRET}"}}\n' + EXPORT,
        f"judge: {{api_key: @{SECRET}}}\n" + EXPORT,
    ],
)
def test_a_configuration_that_is_wrong_is_told_of_without_its_secrets(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(parse_config(text, where="my.yaml", environ={}))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_configuration_is_shown_without_its_secrets(tmp_path: Path) -> None:
    key = base64.b64encode(SECRET.encode().ljust(32)).decode()
    config = config_of(
        tmp_path,
        judge={"use": "openai:m", "api_key": SECRET},
        export=[{"endpoint": "http://127.0.0.1:1", "headers": {"authorization": SECRET}}],
        store={"encryption_keys": [key]},
    )
    shown = f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
    assert SECRET not in shown
    assert key not in shown


@pytest.mark.parametrize("flags", [("--check",), ("--check", "--json"), ("--json",), ()])
def test_a_judge_without_its_key_names_the_variable_alone(tmp_path: Path, flags: tuple[str, ...]) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(
        f"judge: {{use: 'openai:m', api_key_env: NOWHERE}}\n"
        f"export: [{{endpoint: a:1, headers: {{authorization: {SECRET}}}}}]\n"
        f"telemetry: {{listen: null}}\n"
    )
    result = run("collector", "--config", str(file), *flags)
    assert result.exit_code == 2
    assert "NOWHERE" in result.output
    assert SECRET not in result.output


def test_a_secret_out_of_a_file_is_taken_without_its_line_break(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\r\n")
    file.chmod(0o600)
    text = "judge: {api_key: '${file:key}'}\nexport: [{endpoint: a:1, headers: {a: 'Bearer ${file:key}'}}]"
    config = parse_config(text, where="my.yaml", environ={}, folder=tmp_path)
    assert config.judge.api_key is not None
    assert config.judge.api_key.get_secret_value() == SECRET
    assert config.export[0].headers["a"].get_secret_value() == f"Bearer {SECRET}"


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["no file", "not text"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(ConfigError, match=r"my\.yaml: `judge\.api_key`: the file '.*key' cannot be read"):
        parse_config("judge: {api_key: '${file:key}'}", where="my.yaml", environ={}, folder=tmp_path)


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o400, False), (0o640, True), (0o644, True)])
def test_a_secret_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warns: bool
) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET)
    file.chmod(mode)
    parse_config("judge: {api_key: '${file:key}'}\n" + EXPORT, where="a", environ={}, folder=tmp_path)
    assert bool(caplog.records) is warns
    assert SECRET not in caplog.text


def running_config(folder: Path) -> dict[str, Any]:
    (folder / "judge.key").write_text(f"{SECRET}-judge\n")
    (folder / "judge.key").chmod(0o600)
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "50ms"},
        "judge": {
            "use": "openai:m",
            "base_url": f"http://me:{SECRET}-url@127.0.0.1:1/v1",
            "api_key": "${file:judge.key}",
        },
        "evaluate": {"retry_delays": []},
        "export": [
            {"endpoint": f"{scheme}://127.0.0.1:1", "headers": {"authorization": f"Bearer {SECRET}-header"}}
            for scheme in ("http", "grpc")
        ],
        "store": {
            "path": str(folder / "store.db"),
            "encryption_keys": [base64.b64encode(f"{SECRET}-key".ljust(32).encode()).decode()],
        },
        "telemetry": {"listen": "127.0.0.1:0"},
        "log_level": "debug",
        "drain_timeout": "0s",
    }


@pytest.mark.slow
def test_a_collector_with_everything_failing_says_no_secret_anywhere(tmp_path: Path) -> None:
    config = running_config(tmp_path)
    key = config["store"]["encryption_keys"][0]
    pages = ""
    with collector_process(tmp_path, config) as collector:
        with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
            channel.unary_unary(EXPORT_METHOD)(encode(rag_trace(0)), timeout=PATIENCE_S)
        eventually(
            lambda: collector.log.read_text().count("accepts no requests") == 2, what="all have failed"
        )
        for page in ("/status", "/metrics", "/readyz"):
            pages += _page(f"http://127.0.0.1:{collector.pages_port}{page}")
        collector.stop()
        said = collector.log.read_text() + pages
    disk = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
    assert SECRET not in said
    assert key not in said
    assert SECRET.encode() not in disk
    assert key.encode() not in disk


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["${env:OPENAI_BASE_URL}", "a:1"])
def test_a_program_that_fails_shows_no_variable_of_its_environment(tmp_path: Path, endpoint: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(json.dumps({"judge": {"use": "openai:m"}, "export": [{"endpoint": endpoint}]}))
    variables = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": f"ftp://me:{SECRET}@host?k={SECRET}"}
    done = subprocess.run(
        [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(file), "--check"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    assert "write an address" in done.stderr or "base URL" in done.stderr
    assert SECRET not in done.stdout + done.stderr
