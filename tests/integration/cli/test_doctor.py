"""``ragtrace doctor``."""

from __future__ import annotations

import fcntl
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.backends.otlp_receiver import OtlpReceiver
from tests.backends.process import free_ports
from tests.integration.cli.program import json_lines, run
from tests.integration.cli.test_judge_card import a_card
from tests.planted import answered

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


@pytest.mark.parametrize(
    ("auc", "status", "says"),
    [
        pytest.param(None, "warn", "no card", id="no card"),
        pytest.param(0.6, "warn", "below the floor", id="below the floor"),
        pytest.param(0.8, "ok", "measured: AUC 0.80 on mine.jsonl", id="measured"),
    ],
)
def test_what_was_measured_of_the_judge_is_said(
    config: Path, tmp_path: Path, endpoint: str, auc: float | None, status: str, says: str
) -> None:
    card = () if auc is None else ("--set", f"judge.card={a_card(tmp_path / 'card.json', auc=auc)}")
    found = checks("--judge", "scripted", "--to", endpoint, *card)["card"]
    assert (found["status"], says in found["found"]) == (status, True)
    named = "{use: scripted" if auc is None else "{use: scripted, card: card.json"
    plain = config.read_text()
    config.write_text(f"{plain}judge: {named}}}\n")
    assert checks("--config", str(config))["card"] == found
    config.write_text(f"{plain}judge: {named}, require_card: true}}\n")
    required = checks("--config", str(config), exit_code=int(status != "ok"))["card"]
    assert required["status"] == ("ok" if status == "ok" else "fail")
    assert ("`require_card` refuses it" in required["found"]) == (status != "ok")


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


class ModelServer(BaseHTTPRequestHandler):
    """A chat-completions endpoint that judges the doctor's sentence right, and may refuse schemas."""

    refused: ClassVar[frozenset[str]] = frozenset()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "input" in asked:
            self._embed(asked["input"])
            return
        if self.refused & set(asked) or asked.get("response_format", {}).get("type") in self.refused:
            self._answer(400, {"error": {"message": "response_format is not supported"}})
            return
        claim = {"id": 1, "sentence_ids": [1], "text": ANSWER, "kind": "factual", "relevance": "direct"}
        verdict = {"id": 1, "chunks": [1], "quote": ANSWER, "label": "supported", "reason": ""}
        is_extract = "sentence_ids" in str(asked)
        reply = (
            {"claims": [claim], "refusal": False} if is_extract else answered({"verdicts": [verdict]}, asked)
        )
        message = {"role": "assistant", "content": json.dumps(reply)}
        choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": LIKELY}
        self._answer(
            200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    def _embed(self, texts: list[str]) -> None:
        if "embeddings" in self.refused:
            self._answer(404, {"error": {"message": "no such path"}})
            return
        vectors = [{"index": n, "embedding": [1.0, 0.0, 2.0]} for n in range(len(texts))]
        self._answer(200, {"data": vectors, "usage": {"prompt_tokens": 2, "total_tokens": 2}})

    def log_message(self, *_args: object) -> None:
        """Be silent."""

    def _answer(self, status: int, body: object) -> None:
        sent = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@contextmanager
def model_server(*refused: str) -> Iterator[str]:
    handler = type("Handler", (ModelServer,), {"refused": frozenset(refused)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.slow
def test_how_the_server_takes_a_schema_is_shown(endpoint: str) -> None:
    refused = ("json_schema", "tools")
    rung = "json_object"
    with model_server(*refused) as url:
        found = checks("--judge", "openai:m", "--base-url", url, "--to", endpoint)
    assert found["judge"]["found"] == f"judged a test sentence correctly; takes a schema as {rung}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refused", "says"),
    [
        pytest.param((), "given (P(yes) = 0.98); verdicts are asked for as JSON", id="given"),
        pytest.param(("logprobs",), "none: verdicts are asked for as JSON (verify: auto)", id="none"),
    ],
)
def test_log_probabilities_and_the_form_of_verdicts_are_shown(
    endpoint: str, refused: tuple[str, ...], says: str
) -> None:
    with model_server(*refused) as url:
        found = checks("--judge", "openai:m", "--base-url", url, "--to", endpoint)
    assert found["log-probabilities"]["status"] == "ok"
    assert found["log-probabilities"]["found"].startswith(says)


@pytest.mark.slow
def test_probabilities_that_a_configuration_insists_on_must_be_there(config: Path) -> None:
    with model_server("logprobs") as url:
        config.write_text(
            f"{config.read_text()}judge: {{use: 'openai:m', base_url: {url}, verify: logprobs}}\n"
        )
        found = checks("--config", str(config), exit_code=1)
    assert found["log-probabilities"]["status"] == "fail"
    assert "verify: auto" in found["log-probabilities"]["advice"]
    assert "embeddings" not in found


@pytest.mark.slow
def test_an_endpoint_without_embeddings_is_a_warning_unless_they_were_asked_for(endpoint: str) -> None:
    with model_server("embeddings") as url:
        judge = ("--judge", "openai:m", "--base-url", url, "--to", endpoint)
        assert checks(*judge)["embeddings"]["status"] == "warn"
        assert (
            checks(*judge, "--set", "judge.embedder=openai:e", exit_code=1)["embeddings"]["status"] == "fail"
        )
    with model_server() as url:
        found = checks("--judge", "openai:m", "--base-url", url, "--to", endpoint)["embeddings"]
    assert (found["status"], found["found"]) == ("ok", "vectors of 3 numbers")


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


def test_a_store_that_a_collector_uses_is_fine(config: Path, tmp_path: Path) -> None:
    (tmp_path / "ragtrace.db").touch()
    with (tmp_path / "ragtrace.db.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = checks("--config", str(config))
    assert (found["store"]["status"], found["store"]["found"]) == ("ok", "in use by a collector that runs")


def test_a_wrong_configuration_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "collector.yaml").write_text("exprt: []\n")
    found = checks("--config", str(tmp_path / "collector.yaml"), exit_code=1)
    assert "unknown key `exprt`: did you mean `export`?" in found["config"]["found"]


def test_a_secret_that_somebody_repeats_is_masked(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace(f"{tmp_path}/ragtrace.db", "/no/such/Bearer abc123/x.db"))
    found = checks("--config", str(config), exit_code=1)
    assert "/no/such/***" in found["store"]["found"]


def test_people_get_a_page_of_80_columns(nobody: str) -> None:
    result = run("doctor", "--judge", "lexical", "--to", nobody)
    assert result.exit_code == 1
    assert result.stdout.startswith("ok    versions\n")
    assert "fail  export" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
