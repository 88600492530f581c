"""``ragtrace doctor``."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.backends.otlp_receiver import OtlpReceiver
from tests.backends.process import free_ports
from tests.integration.cli.program import COMMAND, json_lines, run
from tests.integration.cli.test_evaluate import a_card
from tests.planted import answered
from tests.unit.backends.servers import HttpAnswer, http_server

pytestmark = pytest.mark.timeout(120)

ANSWER = "Refunds take 14 days."
"""What the doctor asks about."""


def checks(*args: str, exit_code: int = 0) -> dict[str, dict[str, Any]]:
    """Run the doctor; return the checks by the first word of their names."""
    result = run("doctor", *args, "--json")
    assert result.exit_code == exit_code, result.output
    return {each["name"].partition(" ")[0]: each for each in json_lines(result.stdout)}


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    (port,) = free_ports(1)
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def endpoint(otlp_receiver: Callable[[], OtlpReceiver]) -> str:
    return f"grpc://{otlp_receiver().endpoint}"


def test_versions_and_the_lexical_judge_are_fine_and_it_is_called_a_heuristic(endpoint: str) -> None:
    found = checks("--judge", "lexical", "--to", endpoint)
    assert {each["status"] for each in found.values()} == {"ok"}
    assert "ragtrace-otel" in found["versions"]["found"]
    assert "heuristic" in found["judge"]["found"]


def test_what_was_measured_of_the_judge_is_said(config: Path, tmp_path: Path) -> None:
    plain, good = config.read_text(), a_card(tmp_path / "card.json", auc=0.8)
    for judge, status, says in (
        ("use: scripted", "warn", "no card"),
        ("use: scripted, require_card: true", "fail", "no card"),
        (f"use: scripted, card: {good}, require_card: true", "ok", "measured"),
    ):
        config.write_text(f"{plain}judge: {{{judge}}}\n")
        found = checks("--config", str(config), exit_code=int(status == "fail"))["card"]
        assert (found["status"], says in found["found"]) == (status, True), judge


def test_an_endpoint_that_was_named_must_answer(nobody: str) -> None:
    found = checks("--judge", "lexical", "--to", nobody, exit_code=1)
    assert found["export"]["status"] == "fail"
    assert "4317" in found["export"]["advice"]


def test_a_file_to_write_to_needs_a_folder(tmp_path: Path) -> None:
    assert checks("--judge", "lexical", "--to", f"otlp-file:{tmp_path}/x.jsonl")["export"]["status"] == "ok"
    found = checks("--judge", "lexical", "--to", f"otlp-file:{tmp_path}/no/x.jsonl", exit_code=1)
    assert "does not exist" in found["export"]["found"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        pytest.param(
            '{"claims": {"Refunds take 14 days.": "contradicted"}}', "warn", "unsupported", id="poor"
        ),
        pytest.param('{"error": "judge_refused"}', "fail", "judge_refused", id="refused"),
    ],
)
def test_the_judge_is_asked_about_a_sentence(
    tmp_path: Path, endpoint: str, script: str, status: str, says: str
) -> None:
    (tmp_path / "script.json").write_text(script)
    found = checks(
        "--judge", f"scripted:{tmp_path}/script.json", "--to", endpoint, exit_code=int(status == "fail")
    )
    assert found["judge"]["status"] == status
    assert says in found["judge"]["found"]


@pytest.mark.slow
def test_a_model_server_that_is_not_there_is_named_without_the_key(
    nobody: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    judge = ("--judge", "openai:some-model", "--base-url", f"{nobody}/v1", "--api-key-env", "MY_KEY")
    found = checks(*judge, "--to", endpoint, exit_code=1)
    assert found["judge"]["found"].startswith("judge_unavailable: ")
    assert "/v1" in found["judge"]["advice"]
    assert "sk-very-secret" not in str(found)


LIKELY = {
    "content": [
        {
            "token": "Yes",
            "logprob": -0.01,
            "top_logprobs": [{"token": "Yes", "logprob": -0.01}, {"token": "No", "logprob": -4.0}],
        }
    ]
}
"""Log-probabilities: yes, very likely."""


@contextmanager
def model_server(*refused: str) -> Iterator[str]:
    """Serve a model that judges the doctor's sentence right, and refuses some schemas or embeddings."""

    def answer(path: str) -> HttpAnswer:
        asked = json.loads(server.requests[-1][2])
        if "embeddings" in {path.rpartition("/")[2]} & {*refused}:
            return HttpAnswer(status=404, body=b'{"error": {"message": "no such path"}}')
        if {*refused} & {*asked, asked.get("response_format", {}).get("type")}:
            return HttpAnswer(status=400, body=b'{"error": {"message": "response_format is not supported"}}')
        reply = vectors(asked) if "input" in asked else completion(asked)
        return HttpAnswer(headers={"content-type": "application/json"}, body=json.dumps(reply).encode())

    with http_server(answer) as server:
        yield f"{server.url}/v1"


def vectors(asked: Mapping[str, Any]) -> dict[str, Any]:
    found = [{"index": n, "embedding": [1.0, 0.0, 2.0]} for n in range(len(asked["input"]))]
    return {"data": found, "usage": {"prompt_tokens": 2, "total_tokens": 2}}


def completion(asked: Mapping[str, Any]) -> dict[str, Any]:
    claim = {"id": 1, "sentence_ids": [1], "text": ANSWER, "kind": "factual", "relevance": "direct"}
    verdict = {"id": 1, "chunks": [1], "quote": ANSWER, "label": "supported", "reason": ""}
    is_extract = "sentence_ids" in str(asked)
    said = {"claims": [claim], "refusal": False} if is_extract else answered({"verdicts": [verdict]}, asked)
    message = {"role": "assistant", "content": json.dumps(said)}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": LIKELY}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.slow
def test_what_the_model_server_takes_is_shown(endpoint: str) -> None:
    for refused, name, status, says in (
        (
            ("json_schema", "tools"),
            "judge",
            "ok",
            "judged a test sentence correctly; takes a schema as json_object",
        ),
        ((), "log-probabilities", "ok", "given (P(yes) = 0.98); verdicts are asked for as JSON"),
        (("logprobs",), "log-probabilities", "ok", "none: verdicts are asked for as JSON (verify: auto)"),
        ((), "embeddings", "ok", "vectors of 3 numbers"),
        (("embeddings",), "embeddings", "warn", ""),
    ):
        with model_server(*refused) as url:
            found = checks("--judge", "openai:m", "--base-url", url, "--to", endpoint)[name]
        assert (found["status"], found["found"].startswith(says)) == (status, True), (refused, found)


@pytest.mark.slow
def test_a_model_that_does_not_answer_ends_the_check_in_time(endpoint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        judge = ("--judge", "openai:m", "--base-url", url, "--set", "judge.timeout=250ms")
        found = checks(*judge, "--to", endpoint, exit_code=1)
    assert "no answer within 0.25 s" in found["judge"]["found"]
    assert "--set judge.timeout" in found["judge"]["advice"]
    assert found["export"]["status"] == "ok"


@pytest.fixture
def config(tmp_path: Path, endpoint: str) -> Path:
    path = tmp_path / "collector.yaml"
    path.write_text(
        f"export:\n  - endpoint: {endpoint}\n    headers: {{authorization: Bearer abc123}}\n"
        f"store:\n  path: {tmp_path}/ragtrace.db\n"
    )
    return path


def test_what_a_configuration_names_is_checked(config: Path, tmp_path: Path) -> None:
    found = checks("--config", str(config))
    assert list(found) == ["versions", "config", "judge", "card", "export", "store"]
    assert {each["status"] for each in found.values()} == {"ok"}
    assert found["store"]["found"] == "can be created"
    assert list(tmp_path.iterdir()) == [config]


def test_a_wrong_configuration_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "collector.yaml").write_text("exprt: []\n")
    found = checks("--config", str(tmp_path / "collector.yaml"), exit_code=1)
    assert "unknown key `exprt`: did you mean `export`?" in found["config"]["found"]


def test_a_secret_that_somebody_repeats_is_masked(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace(f"{tmp_path}/ragtrace.db", "/no/such/Bearer abc123/x.db"))
    found = checks("--config", str(config), exit_code=1)
    assert "/no/such/***" in found["store"]["found"]


HELPERS = """
import ragtrace
ragtrace.instrument(service_name="support-bot", endpoint="http://localhost:4999")

@ragtrace.retrieval
def retrieve(question):
    return [ragtrace.Chunk(id="faq-12", text="Refunds take 14 days.", score=0.93)]

@ragtrace.rag
def answer(question):
    chunks = retrieve(question)
    with ragtrace.generation(model="m", messages=[{"role": "user", "content": question}]) as generation:
        generation.set_answer("Refunds take 30 days.")
        return "Refunds take 30 days."

print(answer("How long do refunds take?"))
"""

WITH_AN_EXPORTER = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""

SERVER = (
    HELPERS
    + """
import sys, time
print("serving", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("stopped by Ctrl-C", flush=True)
    sys.exit(0)
"""
)


def environment(**env: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_"))}
    return {**kept, "COLUMNS": "120", **env}


def command(folder: Path, code: str) -> str:
    """Write an application, and return the command that runs it."""
    (folder / "app.py").write_text(code)
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(folder / 'app.py'))}"


def doctor(app: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "doctor", "--app", app, *args],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def app_checks(app: str, *args: str, exit_code: int, **env: str) -> dict[str, dict[str, Any]]:
    """Run the doctor; return its checks by name, a trace as ``trace``."""
    done = doctor(app, "--json", *args, **env)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr or "boom" in done.stderr
    return {_name(check): check for check in json_lines(done.stdout)}


def _name(check: Mapping[str, Any]) -> str:
    name = str(check["name"])
    return name.partition(" ")[0] if name.startswith(("trace ", "app ")) else name


@pytest.mark.slow
def test_a_call_that_was_captured_whole_will_be_judged(tmp_path: Path) -> None:
    done = doctor(command(tmp_path, HELPERS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Refunds take 30 days.\n")
    for line in (
        *("without the doctor, spans go to http://localhost:4999", "3 spans: ragtrace 3"),
        *("question  25 characters", "context   1 chunk, 21 characters", "answer    21 characters"),
        *("this will be judged", "1 trace, 1 RAG call, of which 1 will be judged"),
    ):
        assert line in done.stdout


@pytest.mark.slow
def test_texts_are_shown_only_if_they_are_asked_for(tmp_path: Path) -> None:
    app = command(tmp_path, HELPERS.replace("print(", "("))
    texts = ("How long do refunds take?", "Refunds take 14 days.", "Refunds take 30 days.")
    plain, shown = doctor(app), doctor(app, "--show-content")
    assert not any(text in plain.stdout + plain.stderr for text in texts)
    assert all(text in shown.stdout for text in texts)


@pytest.mark.slow
def test_json_keeps_the_output_of_the_application_off_stdout(tmp_path: Path) -> None:
    done = doctor(command(tmp_path, HELPERS), "--json", "--show-content")
    assert "Refunds take 30 days.\n" in done.stderr
    (call,) = next(line["calls"] for line in json_lines(done.stdout) if "calls" in line)
    assert call["judged"] is True
    assert call["contexts"] == ["Refunds take 14 days."]


@pytest.mark.slow
@pytest.mark.parametrize(
    "instrument", ["", "import ragtrace; ragtrace.instrument()\n"], ids=["none", "joined"]
)
def test_an_application_with_an_exporter_of_its_own_sends_each_span_once(
    tmp_path: Path, instrument: str
) -> None:
    code = f"""
{WITH_AN_EXPORTER}
{instrument}
with trace.get_tracer("mine").start_as_current_span("chat", attributes={{"gen_ai.operation.name": "chat"}}):
    pass
"""
    found = app_checks(command(tmp_path, code), exit_code=1)
    assert found["trace"]["found"].startswith("1 span: mine 1\n")
    whose = "it joined the application's tracer provider" if instrument else "other code writes the spans"
    assert whose in found["ragtrace.instrument()"]["found"]


@pytest.mark.slow
def test_a_library_without_its_instrumentor_is_named_with_what_to_install(tmp_path: Path) -> None:
    found = app_checks(
        command(tmp_path, "import ragtrace; ragtrace.instrument()\nimport openai"), exit_code=1
    )
    assert found["library openai"]["status"] == "fail"
    assert found["library openai"]["advice"] == "pip install openinference-instrumentation-openai"
    assert found["spans"]["found"] == "none came"


@pytest.mark.slow
def test_a_call_without_its_chunks_is_not_judged_and_the_way_out_is_said(tmp_path: Path) -> None:
    code = HELPERS.replace("@ragtrace.retrieval\n", "")
    found = app_checks(command(tmp_path, code), exit_code=1)["trace"]
    assert "not judged: no_retrieval" in found["found"]
    assert "@ragtrace.retrieval" in found["advice"]


@pytest.mark.slow
def test_an_application_that_never_calls_instrument_is_told_both_ways_in(tmp_path: Path) -> None:
    found = app_checks(command(tmp_path, "print('hello')"), exit_code=1)["ragtrace.instrument()"]
    assert found["found"] == "was never called, and no spans came"
    assert "opentelemetry-instrument python app.py" in found["advice"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--app", "no-such-program app.py"), "'no-such-program' cannot be started (No such file"),
        (("--app", "python 'app.py"), "No closing quotation"),
        (("--app", "true", "--to", "http://localhost:4317"), "--to"),
    ],
)
def test_what_runs_no_application_is_wrong_usage(args: tuple[str, ...], says: str) -> None:
    done = run("doctor", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_server_is_stopped_by_ctrl_c_and_what_it_sent_is_shown(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "doctor", "--app", command(tmp_path, SERVER)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # or a terminal that runs the tests would be thought to tell the server
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Refunds take 30 days.\n"
        assert process.stdout.readline() == "serving\n"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stderr
    assert stdout.startswith("stopped by Ctrl-C\n")
    assert "was stopped after" in stdout
    assert "of which 1 will be judged" in stdout
