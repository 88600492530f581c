"""``ragtrace doctor --app``: an application runs as it is, and what it sends is shown and weighed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.program import COMMAND, json_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

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
from opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter import OTLPSpanExporter
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


def checks(app: str, *args: str, exit_code: int, **env: str) -> dict[str, dict[str, Any]]:
    """Run the doctor; return its checks by name, a trace as ``trace``."""
    done = doctor(app, "--json", *args, **env)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr or "boom" in done.stderr
    return {_name(check): check for check in json_lines(done.stdout)}


def _name(check: Mapping[str, Any]) -> str:
    name = str(check["name"])
    return name.partition(" ")[0] if name.startswith(("trace ", "app ")) else name


def test_a_call_that_was_captured_whole_will_be_judged(tmp_path: Path) -> None:
    done = doctor(command(tmp_path, HELPERS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Refunds take 30 days.\n")
    for line in (
        "without the doctor, spans go to http://localhost:4999",
        "3 spans: ragtrace 3",
        "question  25 characters",
        "context   1 chunk, 21 characters",
        "answer    21 characters",
        "this will be judged",
        "1 trace, 1 RAG call, of which 1 will be judged",
    ):
        assert line in done.stdout


def test_texts_are_shown_only_if_they_are_asked_for(tmp_path: Path) -> None:
    app = command(tmp_path, HELPERS.replace("print(", "("))
    texts = ("How long do refunds take?", "Refunds take 14 days.", "Refunds take 30 days.")
    plain, shown = doctor(app), doctor(app, "--show-content")
    assert not any(text in plain.stdout + plain.stderr for text in texts)
    assert all(text in shown.stdout for text in texts)


def test_json_keeps_the_output_of_the_application_off_stdout(tmp_path: Path) -> None:
    done = doctor(command(tmp_path, HELPERS), "--json", "--show-content")
    assert "Refunds take 30 days.\n" in done.stderr
    (call,) = next(line["calls"] for line in json_lines(done.stdout) if "calls" in line)
    assert call["judged"] is True
    assert call["contexts"] == ["Refunds take 14 days."]
    assert (call["question_chars"], call["context_chars"], call["answer_chars"]) == (25, [21], 21)


@pytest.mark.parametrize(
    "instrument", ["", "import ragtrace; ragtrace.instrument()\n"], ids=["none", "joined"]
)
def test_an_application_with_an_exporter_of_its_own_sends_each_span_once(
    tmp_path: Path, instrument: str
) -> None:
    protocol = "grpc"
    code = f"""
{WITH_AN_EXPORTER.format(protocol=protocol)}
{instrument}
with trace.get_tracer("mine").start_as_current_span("chat", attributes={{"gen_ai.operation.name": "chat"}}):
    pass
"""
    found = checks(command(tmp_path, code), exit_code=1)
    assert found["trace"]["found"].startswith("1 span: mine 1\n")
    whose = "it joined the application's tracer provider" if instrument else "other code writes the spans"
    assert whose in found["ragtrace.instrument()"]["found"]


def test_an_endpoint_that_nobody_named_is_told(tmp_path: Path) -> None:
    app = command(tmp_path, HELPERS.replace(', endpoint="http://localhost:4999"', ""))
    said = checks(app, exit_code=0)["ragtrace.instrument()"]["found"]
    assert said.endswith("spans go to http://localhost:4317, the default, as no endpoint was named")
    named = checks(app, exit_code=0, OTEL_EXPORTER_OTLP_ENDPOINT="http://tempo:4317")["ragtrace.instrument()"]
    assert named["found"].endswith("spans go to http://tempo:4317")


def test_a_library_without_its_instrumentor_is_named_with_what_to_install(tmp_path: Path) -> None:
    found = checks(command(tmp_path, "import ragtrace; ragtrace.instrument()\nimport openai"), exit_code=1)
    assert found["library openai"]["status"] == "fail"
    assert found["library openai"]["advice"] == "pip install openinference-instrumentation-openai"
    assert found["spans"]["found"] == "none came"


def test_a_call_without_its_chunks_is_not_judged_and_the_way_out_is_said(tmp_path: Path) -> None:
    code = HELPERS.replace("@ragtrace.retrieval\n", "")
    found = checks(command(tmp_path, code), exit_code=1)["trace"]
    assert "not judged: no_retrieval" in found["found"]
    assert "@ragtrace.retrieval" in found["advice"]


def test_an_application_that_never_calls_instrument_is_told_both_ways_in(tmp_path: Path) -> None:
    found = checks(command(tmp_path, "print('hello')"), exit_code=1)["ragtrace.instrument()"]
    assert found["found"] == "was never called, and no spans came"
    assert "opentelemetry-instrument python app.py" in found["advice"]


def test_an_application_that_crashes_is_told_and_what_it_sent_still_counts(tmp_path: Path) -> None:
    end = "ragtrace.flush(); import os; os.kill(os.getpid(), 9)"
    says = "was ended by SIGKILL"
    found = checks(command(tmp_path, f"{HELPERS}\n{end}"), exit_code=0)
    assert found["app"]["status"] == "warn"
    assert found["app"]["found"].startswith(says)


def test_what_is_no_command_is_exit_code_2() -> None:
    app = "no-such-program app.py"
    says = "'no-such-program' cannot be started (No such file or directory)"
    done = doctor(app)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("--app", "true", "--to", "http://localhost:4317"),
        ("--for", "30s"),
        ("--app", "true", "--for", "soon"),
    ],
    ids=lambda args: " ".join(args),
)
def test_options_that_do_not_go_together_are_wrong_usage(args: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*COMMAND, "doctor", *args], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")


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
