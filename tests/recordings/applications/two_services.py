"""One question, two processes: who asks the model is not who searches."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys

from tests.recordings.applications.application import Application, Json, complete

ENDPOINT = "RECORDING_OTLP_ENDPOINT"
"""Set by the recorder: where the second process exports to."""
SERVICE_NAME = "RECORDING_SERVICE_NAME"


def two_services() -> Application:
    return Application(
        question="How long does the warranty last?",
        prepare=_search_service,
        ask=_ask,
        chunks=_search,
        is_rooted=False,
    )


def _ask(question: str) -> str:
    import ragtrace  # does nothing where another instrumentation is recorded

    with ragtrace.rag(question) as call:
        call.answer = answer = complete(question, _search(question))
    return answer


def _search(question: str) -> list[Json]:
    import httpx
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    reply = httpx.get(f"{_search_service()}/search", params={"q": question}, headers=headers)
    found: list[Json] = reply.raise_for_status().json()
    return found


@functools.cache
def _search_service() -> str:
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.recordings.applications.search_service", os.environ[ENDPOINT]],
        env={**os.environ, SERVICE_NAME: "search"},
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(service.kill)
    assert service.stdout is not None
    return f"http://127.0.0.1:{int(service.stdout.readline())}"
