"""Whatever goes wrong or right, no secret and nothing under judgment stands in what the program says."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path

import grpc
import httpx
import pytest

from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import encode
from ragtrace_collector.config import parse_config
from ragtrace_collector.service.check import check_config
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.telemetry.logs import JsonLines, TextLines
from tests.acceptance.collector_process import collector_process
from tests.backends.process import eventually
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.test_operations import get
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import GrpcAnswer, HttpAnswer, grpc_server, http_server

SECRET = "sk-PLANTED-9f2c"
EXPORT = "export: [{endpoint: 'http://localhost:4317'}]\n"
QUESTION, CHUNK, ANSWER = "canary of the question?", "The canary of the chunk.", "A canary of the answer."
KEY = "canary-of-the-key"
SPANS = rag_trace(0, question=QUESTION, chunks=[CHUNK], answer=ANSWER)


# -- configurations ---------------------------------------------------------------------------------------
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
        f"export: [{{endpoint: a:1, headers: {{authorization: ['{SECRET}']}}}}]",
        f'export: [{{endpoint: a:1, headers: {{authorization: "{SECRET}\\n"}}}}]',
        f"export: [{{endpoint: a:1, headers: '{SECRET}'}}]",
        f"receive: {{tokens: [{{name: a, sha256: {SECRET}}}]}}\n" + EXPORT,
        f"store: {{encryption_keys: [{SECRET}]}}\n" + EXPORT,
        f"store: {{encryption_keys: {SECRET}}}\n" + EXPORT,
        f"a: b: {SECRET}\n" + EXPORT,
        f"judge: {{api_key: *{SECRET}}}\n" + EXPORT,
        f"judge: {{api_key: '{SECRET}\n" + EXPORT,
        f"judge: {{api_key: @{SECRET}}}\n" + EXPORT,
    ],
)
def test_a_configuration_that_is_wrong_is_told_of_without_its_secrets(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(parse_config(text, where="my.yaml", environ={}))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("flags", [("--check",), ("--json",)])
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


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, True), (0o644, True)])
def test_a_secret_out_of_a_file_is_taken_without_its_line_break_and_warned_of_if_others_can_read_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warns: bool
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\r\n")
    file.chmod(mode)
    text = "judge: {api_key: '${file:key}'}\nexport: [{endpoint: a:1, headers: {a: 'Bearer ${file:key}'}}]"
    config = parse_config(text, where="my.yaml", environ={}, folder=tmp_path)
    assert config.judge.api_key is not None
    assert config.judge.api_key.get_secret_value() == SECRET
    assert config.export[0].headers["a"].get_secret_value() == f"Bearer {SECRET}"
    assert SECRET not in f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
    assert bool(caplog.records) is warns
    assert SECRET not in caplog.text


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["no file", "not text"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(ConfigError, match=r"my\.yaml: `judge\.api_key`: the file '.*key' cannot be read"):
        parse_config("judge: {api_key: '${file:key}'}", where="my.yaml", environ={}, folder=tmp_path)


# -- a collector ------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_collector_with_everything_failing_says_no_secret_anywhere(tmp_path: Path) -> None:
    (tmp_path / "judge.key").write_text(f"{SECRET}-judge\n")
    (tmp_path / "judge.key").chmod(0o600)
    url, key = f"http://me:{SECRET}-url@127.0.0.1:1/v1", base64.b64encode(f"{SECRET}-key".ljust(32).encode())
    headers = {"authorization": f"Bearer {SECRET}-header"}
    config = {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "50ms"},
        "judge": {"use": "openai:m", "base_url": url, "api_key": "${file:judge.key}"},
        "evaluate": {"retry_delays": []},
        "export": [{"endpoint": f"{way}://127.0.0.1:1", "headers": headers} for way in ("http", "grpc")],
        "store": {"path": str(tmp_path / "store.db"), "encryption_keys": [key.decode()]},
        "telemetry": {"listen": "127.0.0.1:0"},
        "log_level": "debug",
        "drain_timeout": "0s",
    }
    with collector_process(tmp_path, config) as collector:
        with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            export(encode(rag_trace(0)), timeout=PATIENCE_S)
        eventually(
            lambda: collector.log.read_text().count("accepts no requests") == 2, what="all have failed"
        )
        pages = "".join(
            httpx.get(f"http://127.0.0.1:{collector.pages_port}{page}", timeout=PATIENCE_S).text
            for page in ("/status", "/metrics", "/readyz")
        )
        collector.stop()
    said = (collector.log.read_text() + pages).encode()
    said += b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
    assert SECRET.encode() not in said
    assert key not in said


@pytest.mark.slow
def test_a_program_that_fails_shows_no_variable_of_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(json.dumps({"judge": {"use": "openai:m"}, "export": [{"endpoint": "a:1"}]}))
    variables = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": f"ftp://me:{SECRET}@host?k={SECRET}"}
    done = subprocess.run(
        [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(file), "--check"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    assert "base URL" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def lines(caplog: pytest.LogCaptureFixture) -> str:
    """Return every line of the process, in both formats."""
    return "".join(form.format(record) for record in caplog.records for form in (JsonLines(), TextLines()))


async def told(collector: Collector, *counts: str) -> str:
    """Wait until one of these was counted; return what all pages say then."""
    await until(lambda: sum(collector.counters.snapshot()[name] for name in counts))
    paths = ("/readyz", "/metrics", "/status", "/ledger", f"/why/{trace_id_of(0)}")
    return "".join([(await get(collector, path)).text for path in paths])


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 401, 500])
async def test_a_judge_that_quotes_what_it_was_asked_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("JUDGE_KEY", KEY)
    body = f'{{"error": {{"message": "no: {QUESTION} {CHUNK} {ANSWER} {KEY}", "code": "bad"}}}}'.encode()
    with http_server(lambda _: HttpAnswer(status=status, body=body)) as server:
        judge = {"use": "openai:m", "base_url": f"{server.url}/v1", "api_key_env": "JUDGE_KEY"}
        async with running_collector(config_of(tmp_path, judge=judge, drain_timeout="0s")) as collector:
            await post(collector, request_of(*SPANS))
            pages = await told(collector, "answers_postponed", "answers_failed")
    assert "canary" not in pages + lines(caplog)


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE])
async def test_a_back_end_that_quotes_what_it_was_sent_is_not_quoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: grpc.StatusCode
) -> None:
    caplog.set_level(logging.INFO)
    answer = GrpcAnswer(code=code, details=f"attribute too long: {ANSWER}")
    async with grpc_server(answer) as server:
        export = [{"endpoint": server.endpoint, "forward": True, "headers": {"x-key": KEY}}]
        async with running_collector(config_of(tmp_path, export=export, drain_timeout="0s")) as collector:
            await post(collector, request_of(*SPANS))
            pages = await told(collector, "parcels_rejected", "deliveries_failed")
    assert "attribute too long" in lines(caplog)
    assert "canary" not in pages + lines(caplog)


async def test_own_telemetry_and_refusals_hold_no_content(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with http_server(lambda _: HttpAnswer()) as server:
        config = config_of(tmp_path, judge={"use": "lexical"}, telemetry={"otlp_endpoint": server.url})
        async with running_collector(config) as collector:
            broken = f'{{"resourceSpans": "{QUESTION}"}}'.encode()
            for kind in ("json", "x-protobuf"):
                answer = await post(collector, broken, {"content-type": f"application/{kind}"})
                assert answer.status_code == httpx.codes.BAD_REQUEST
            await post(collector, request_of(*SPANS))
            await until(lambda: collector.counters.snapshot()["parcels_delivered"])
        requests = server.requests
    assert {path for path, _, _ in requests} == {"/v1/traces", "/v1/metrics"}
    assert b"canary" not in b"".join(body for _, _, body in requests)
    assert "canary" not in lines(caplog)
