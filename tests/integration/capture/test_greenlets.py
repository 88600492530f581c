"""Under gevent and eventlet, an export never stops the application's greenlets."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
PATCHED = {
    "gevent": "from gevent import monkey; monkey.patch_all()\n",
    "eventlet": "import eventlet; eventlet.monkey_patch()\n",
}
CALL = """
import ragtrace, threading, time
ragtrace.instrument(protocol="grpc", service_name="app")

@ragtrace.rag
def ask(question): return "Ada"

ask("Who?")
"""
TICKING = """
ticks = []
flushing = threading.Thread(target=ragtrace.flush, args=(2,))
flushing.start()
while flushing.is_alive():
    time.sleep(0.01)
    ticks.append(None)
print(len(ticks), flush=True)
import os
os._exit(0)
"""

pytestmark = pytest.mark.slow


def run(
    frameworks: Path, library: str, code: str, endpoint: str, *, patches_late: bool = False
) -> subprocess.CompletedProcess[str]:
    found = subprocess.run([frameworks, "-c", f"import {library}"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{library} is not there: run `make .venv-frameworks`")
    program = CALL + PATCHED[library] if patches_late else PATCHED[library] + CALL
    ended = subprocess.run(
        [frameworks, "-W", "ignore", "-c", program + code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return ended


@pytest.fixture
def silent() -> Iterator[str]:
    """Listen, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("library", PATCHED)
def test_spans_arrive_by_http_though_grpc_was_asked_for(
    frameworks: Path, library: str, http_receiver: Any
) -> None:
    run(frameworks, library, "assert ragtrace.flush()\n", http_receiver.endpoint)
    assert [span.name for span in http_receiver.spans] == ["invoke_workflow rag"]


@pytest.mark.parametrize("patches_late", [False, True], ids=["patched", "patched after instrument()"])
@pytest.mark.parametrize("library", PATCHED)
def test_greenlets_run_while_an_endpoint_is_silent(
    frameworks: Path, library: str, patches_late: bool, silent: str
) -> None:
    """A server that loads the application before it forks, as gunicorn's --preload does, patches late."""
    assert int(run(frameworks, library, TICKING, silent, patches_late=patches_late).stdout) > 10


@pytest.mark.parametrize("library", PATCHED)
def test_the_usual_port_of_grpc_becomes_that_of_http(frameworks: Path, library: str) -> None:
    ended = run(frameworks, library, "ragtrace.uninstrument()\n", "http://127.0.0.1:4327")
    assert "no span could be sent to http://127.0.0.1:4328 by HTTP" in ended.stderr
