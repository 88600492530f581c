"""Back-fill on a real Jaeger: stored answers get their verdicts in the same traces, once."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from ragtrace.traces.otlp import encode
from tests.acceptance.judge_server import JudgeServer, running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.backends.jaeger_server import Jaeger
from tests.backends.process import eventually
from tests.integration.cli.program import json_lines, start
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

ANSWERS = 12
CALLS = 2 * ANSWERS
CONCURRENCY = 2
_numbers = count(0xBACF_0000, ANSWERS)


@pytest.fixture
def judge() -> Iterator[JudgeServer]:
    with running_judge(REPLIES) as server:
        yield server


def store(url: str, *, service: str, age_s: float) -> set[str]:
    """Send answers a second apart to a back end, and return their trace ids."""
    start_ns, first = time.time_ns() - int(age_s * 1e9), next(_numbers)
    traces = [
        rag_trace(first + number, answer=ANSWER, service=service, start_ns=start_ns + number * 10**9)
        for number in range(ANSWERS)
    ]
    body = encode([span for spans in traces for span in spans])
    headers = {"content-type": "application/x-protobuf"}
    httpx.post(f"{url}/v1/traces", content=body, headers=headers).raise_for_status()
    return {spans[0].trace_id for spans in traces}


def begin(judge: JudgeServer, *args: str) -> subprocess.Popen[bytes]:
    asked = ("--judge", "openai:rule", "--base-url", judge.base_url, "--concurrency", str(CONCURRENCY))
    return start("backfill", *args, *asked, "--threshold", "0.7", "--json")


def finish(run: subprocess.Popen[bytes]) -> dict[str, Any]:
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors.decode()
    (report,) = json_lines(output.decode())
    return report


def carriers_in_jaeger(jaeger: Jaeger, service: str) -> list[tuple[str, str]]:
    """Find the failing answers as a person does, and return trace and span ids of their carriers."""
    return [
        (trace["traceID"].zfill(32), span["spanID"])  # Jaeger's older API leaves zeros out
        for trace in jaeger.search(service, {"ragtrace.label.faithfulness": "fail"})
        for span in trace["spans"]
        if span["operationName"].startswith("evaluation")
    ]


def test_answers_in_jaeger_get_their_verdicts_once_also_from_a_run_that_was_killed(
    jaeger: Jaeger, judge: JudgeServer
) -> None:
    service = "backfilled"
    stored = store(jaeger.otlp_http, service=service, age_s=1_200)
    eventually(lambda: len(jaeger.search(service)) == ANSWERS, what="the traces in Jaeger")
    args = ("--from", f"jaeger:{jaeger.query_url}", "--to", jaeger.otlp_http, "--service", service)

    judge.hold_from(CALLS // 2)
    run = begin(judge, *args)
    judge.wait_for_calls(CALLS // 2)
    run.kill()
    judge.release()
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode == -signal.SIGKILL

    finish(begin(judge, *args, "--resume"))
    eventually(
        lambda: {trace_id for trace_id, _ in carriers_in_jaeger(jaeger, service)} == stored,
        what="the carriers in Jaeger",
    )
    assert len(set(carriers_in_jaeger(jaeger, service))) == ANSWERS
    assert judge.calls <= CALLS + 2 * CONCURRENCY

    calls = judge.calls
    again = finish(begin(judge, *args))
    assert (again["already_evaluated"], again["sent"], judge.calls) == (ANSWERS, 0, calls)
