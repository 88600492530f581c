"""A real prefork server: each worker records, exports and counts for itself, and ends with nothing lost."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from ragtrace import semconv
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.process import running
from tests.patience import PATIENCE_S

APPS = Path(__file__).with_name("apps")
QUESTION = "Who?"
ROUTES = ("mapping", "json", "tuple", "generator", "streamed")

pytestmark = pytest.mark.slow


class Served(NamedTuple):
    """What the routes answered, and what had arrived when the server was gone."""

    responses: dict[str, httpx.Response]
    receiver: OtlpReceiver
    exit_code: int
    log: str

    def recorded(self, key: str) -> list[str]:
        """Return the first message's text under this attribute of every span."""
        attributes = [{pair.key: pair.value for pair in span.attributes} for span in self.receiver.spans]
        return [json.loads(held[key].string_value)[0]["parts"][0]["content"] for held in attributes]


@pytest.fixture(scope="module")
def served(frameworks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("gunicorn") / "log"
    bind = ["--bind", "127.0.0.1:0", "--workers", "2", "--preload", "--no-control-socket"]
    command = [frameworks, "-W", "error", "-m", "gunicorn", *bind, "flask_app:app"]
    with running_receiver() as receiver:
        env = {"PYTHONPATH": str(APPS), "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.endpoint}"}
        with running(command, env=env, ready=lambda: "Booting worker" in log.read_text(), log=log) as server:
            found = re.search(r"Listening at: (\S+)", log.read_text())
            assert found is not None
            asked = {"question": QUESTION}
            responses = {
                route: httpx.post(f"{found[1]}/{route}", json=asked) for route in ROUTES for _ in range(8)
            }
            server.terminate()
            exit_code = server.wait(timeout=PATIENCE_S)
        yield Served(responses, receiver, exit_code, log.read_text())


def test_every_worker_sends_all_it_recorded_before_it_ends(served: Served) -> None:
    assert served.exit_code == 0
    assert len(served.receiver.spans) == 8 * len(ROUTES)
    assert "Traceback" not in served.log


@pytest.mark.parametrize("route", ROUTES)
def test_a_flask_route_answers_as_it_did(served: Served, route: str) -> None:
    response = served.responses[route]
    text = response.json()["answer"] if route in {"mapping", "json"} else response.text
    assert re.fullmatch(rf"Ada \d+ /{route}", text)
    assert response.headers.get("x-header") == (None if route in {"mapping", "json"} else "kept")
    assert response.status_code == (201 if route == "tuple" else 200)


def test_a_flask_routes_question_and_answer_are_recorded(served: Served) -> None:
    assert set(served.recorded(semconv.INPUT_MESSAGES)) == {QUESTION}
    answers = Counter(re.sub(r"\d+", "n", answer) for answer in served.recorded(semconv.OUTPUT_MESSAGES))
    assert answers == {f"Ada n /{route}": 8 for route in ROUTES}
