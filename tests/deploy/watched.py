"""What the compose example starts, but Grafana, as processes; and an application's answers, judged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry import trace

import ragtrace
from ragtrace import semconv
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.acceptance.test_main_job import BAD, CHUNKS, GOOD
from tests.backends.binary import BACKENDS, required_binary
from tests.backends.jaeger_server import Jaeger, running_jaeger
from tests.backends.process import eventually, free_ports
from tests.backends.prometheus_server import Prometheus, running_prometheus
from tests.backends.tempo_server import Tempo, running_tempo
from tests.deploy.test_deploy import COMPOSE

__all__ = ["MODEL", "SERVICE", "TENANT", "VERSION", "Watched", "watched_answers"]

SERVICE, MODEL, VERSION, TENANT = "shop", "m-1", "v3", "acme"
STEP_S = 15
_ANSWERS = {**GOOD, **BAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What an operator looks at."""

    prometheus: Prometheus
    tempo: Tempo
    jaeger: Jaeger
    collector: CollectorProcess
    since_s: int


@contextmanager
def watched_answers(folder: Path) -> Iterator[Watched]:
    """Run the back ends with their deployed files, and judge two rounds of answers, good and bad."""
    since_s = int(time.time()) - STEP_S
    with ExitStack() as stack:
        tempo = stack.enter_context(
            running_tempo(required_binary("tempo"), folder, config=_tempo_file(folder))
        )
        jaeger = stack.enter_context(running_jaeger(required_binary("jaeger"), folder))
        collector = stack.enter_context(collector_process(folder, _collector_config(folder, tempo, jaeger)))
        scrapes = {"ragtrace-collector": collector.pages_port or 0}
        prometheus = stack.enter_context(running_prometheus(folder, scrapes=scrapes))
        for asked in (1, 2):  # growth needs a scrape before it
            _run_application(f"http://127.0.0.1:{collector.grpc_port}")
            eventually(lambda asked=asked: _scores(prometheus) == asked * len(_ANSWERS), what="scores")  # type: ignore[misc]
        yield Watched(prometheus=prometheus, tempo=tempo, jaeger=jaeger, collector=collector, since_s=since_s)


def _scores(prometheus: Prometheus) -> float:
    found = prometheus.value('sum(ragtrace_evaluation_score_count{gen_ai_evaluation_name="faithfulness"})')
    return found or 0.0


def _tempo_file(folder: Path) -> Path:
    """Return the deployed file, with addresses and times of a test."""
    deployed = yaml.safe_load((COMPOSE / "tempo.yaml").read_text().replace("/var/tempo", str(folder)))
    local = yaml.safe_load((BACKENDS / "tempo" / "tempo.yaml").read_text())
    file = folder / "tempo.yaml"
    file.write_text(yaml.safe_dump(_over(deployed, local)))
    return file


def _over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _over(below.get(key), value) for key, value in above.items()}


def _collector_config(folder: Path, tempo: Tempo, jaeger: Jaeger) -> Mapping[str, Any]:
    deployed: dict[str, Any] = yaml.safe_load((COMPOSE / "collector.yaml").read_text())
    (page,) = free_ports(1)
    return {
        **deployed,
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "assemble": {"quiet_period": "200ms", "deadline": "5s"},
        "judge": {"use": "scripted"},
        "export": [{"endpoint": end, "forward": True} for end in (tempo.otlp_grpc, jaeger.otlp_grpc)],
        "store": {"path": str(folder / "store.db")},
        "telemetry": {"listen": "127.0.0.1:0"},
        "drift": {"anchors": "builtin"},
        "ui": {"listen": f"127.0.0.1:{page}", "public_url": f"http://127.0.0.1:{page}"},
    }


def _run_application(endpoint: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{semconv.TENANT}={TENANT}")
        ragtrace.instrument(service_name=SERVICE, endpoint=endpoint, protocol="grpc")
        try:
            for question, answer in _ANSWERS.items():
                _ask(question, answer)
        finally:
            ragtrace.uninstrument()


def _ask(question: str, answer: str) -> None:
    with ragtrace.rag(question=question, name="ask") as call:
        with ragtrace.retrieval(query=question, data_source="faq", top_k=2) as retrieval:
            retrieval.set_chunks(CHUNKS)
        messages = [{"role": "user", "content": question}]
        with ragtrace.generation(model=MODEL, messages=messages) as generation:
            trace.get_current_span().set_attribute(semconv.PROMPT_VERSION, VERSION)
            generation.set_answer(answer)
        call.set_answer(answer)
