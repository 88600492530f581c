"""What a reader of the documents has: files, a model, a Jaeger, a collector that ran, and one that runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import grpc
import httpx

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode, encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.ledger import PENDING, State
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.process import eventually
from tests.docs.blocks import ROOT
from tests.gullible_model import completion, gullible_reply, running_model
from tests.integration.cli.faulty_servers import faulty_jaeger
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

__all__ = ["TRACE_ID", "Place", "running_place"]

TRACE_ID: Final = "5b8efff798038103d269b633813fc60c"
"""That the documents ask for."""
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_FACTS: Final = ("Refunds take 14 days. They are paid to the card.", "Our shop opened in 1998.")
_RECORDS: Final[Sequence[Mapping[str, Any]]] = (
    {"id": "1", "question": "How long?", "contexts": _FACTS, "answer": "Refunds take 14 days."},
    {"id": "2", "question": "How long?", "contexts": _FACTS, "answer": "Refunds take 30 days."},
)
_LABELED: Final[Sequence[Mapping[str, Any]]] = (
    {"contexts": [_FACTS[0]], "claims": [{"text": "Refunds take 14 days.", "label": "supported"}]},
    {"contexts": [_FACTS[0]], "claims": [{"text": "Refunds take 30 days.", "label": "contradicted"}]},
)
_PROGRAMS: Final = {
    # They act on a whole machine, or on an index that the package is not on.
    "pip": ":",
    "systemctl": ":",
    "journalctl": """echo '{"severity_text": "INFO"}'; echo '{"severity_text": "WARNING"}'""",
    # Who is asked whether it may cost something sits at a terminal; here nobody does.
    "ragtrace": """case "$1 $*" in backfill*|"rejudge "*--judge*) set -- "$@" --yes;; esac
exec PYTHON -m ragtrace.cli "$@" """,
    "python": 'exec PYTHON "$@"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder as a reader has it, and what listens on this machine."""

    folder: Path
    """With files of the names in the documents; copied for each block."""
    collector: CollectorProcess
    carriers: Path
    model: str
    jaeger: str
    back_end: str

    def with_addresses(self, text: str) -> str:
        """Return a block with the addresses of what listens here, and with its placeholders filled."""
        filled = {
            "localhost:16686": self.jaeger.removeprefix("http://"),
            "http://localhost:4317": f"grpc://{self.back_end}",
            "127.0.0.1:4329": f"127.0.0.1:{self.collector.pages_port}",
            "--print-config": f"--print-config | sed -E '{self._in_a_configuration()}'",
            "/etc/ragtrace/": "",
            "/opt/ragtrace/bin/": "",
            "/backups/": "",
            "backfill …": "backfill --from otlp-file:traces.jsonl --to otlp-file:verdicts.jsonl",
            "API_KEY=…": "API_KEY=none",
            "TRACE_ID": TRACE_ID,
        }
        return re.sub("|".join(map(re.escape, filled)), lambda found: filled[found[0]], text)

    def _in_a_configuration(self) -> str:
        """Return how sed puts free ports in place of those that all users of this machine share."""
        return f"s/^( *(grpc|http|listen): 127.0.0.1):43../\\1:0/; s|http://localhost:4317|grpc://{self.back_end}|"

    def environment(self, folder: Path) -> dict[str, str]:
        """Return what commands see."""
        return {
            **os.environ,
            "PATH": f"{self.folder.parent / 'bin'}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
            "TMPDIR": str(folder),
            "OPENAI_BASE_URL": self.model,
            "OPENAI_API_KEY": "none",
            "COLUMNS": "200",
        }

    def run(self, commands: str, *, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run commands as a shell does that stops at the first that fails."""
        folder = folder or self.folder
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env=self.environment(folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def send(self, request: bytes) -> None:
        """Send spans to the collector that runs."""
        with grpc.insecure_channel(f"127.0.0.1:{self.collector.grpc_port}") as channel:
            channel.unary_unary(_EXPORT)(request, wait_for_ready=True)

    def outcomes(self, receiver: OtlpReceiver) -> list[str]:
        """Pass on to the collector what came elsewhere, and return what becomes of each trace of it."""
        for request in receiver.requests:
            self.send(request.SerializeToString())
        traces = {span.trace_id.hex() for span in receiver.spans}
        return sorted(self.outcome(trace_id) for trace_id in traces)

    def outcome(self, trace_id: str) -> str:
        """Wait for what becomes of a trace: the labels of its carriers, or why there are none."""
        told = eventually(lambda: self._settled(trace_id), what=f"an end of trace {trace_id}")
        answers = [answer for answer in told["answers"] if answer["state"] != State.SUPERSEDED]
        if all(answer["state"] != State.JUDGED for answer in answers):
            return ",".join(answer["reason"] for answer in answers) or "no answer"
        return eventually(lambda: self._verdict(trace_id), what=f"a carrier in trace {trace_id}")

    def _settled(self, trace_id: str) -> dict[str, Any] | None:
        answer = httpx.get(f"http://127.0.0.1:{self.collector.pages_port}/why/{trace_id}", timeout=60)
        told: dict[str, Any] = answer.json()
        is_settled = answer.is_success and told["trace"] and not told["trace"]["is_open"]
        is_pending = is_settled and any(answer["state"] in PENDING for answer in told["answers"])
        return told if is_settled and not is_pending else None

    def _verdict(self, trace_id: str) -> str | None:
        lines = self.carriers.read_text("utf-8").split("\n")[:-1] if self.carriers.exists() else []
        found = [span for line in lines for span in decode_json(line) if span.trace_id == trace_id]
        label = f"{semconv.LABEL_PREFIX}faithfulness"
        return ",".join(str(span.attributes.get(label, span.name)) for span in found) or None


@contextmanager
def running_place(folder: Path) -> Iterator[Place]:
    """Prepare the folder and run what listens, until the block ends."""
    here, there = folder / "reader", folder / "collector"
    here.mkdir()
    there.mkdir()
    _make_programs(folder / "bin")
    stored = _stored()
    with (
        running_model(_said) as model,
        faulty_jaeger(stored) as jaeger,
        running_receiver() as back_end,
        collector_process(there, _config(f"otlp-file:{there / 'out.jsonl'}")) as collector,
    ):
        place = Place(
            folder=here,
            collector=collector,
            carriers=there / "out.jsonl",
            model=model,
            jaeger=jaeger.url,
            back_end=back_end.endpoint,
        )
        _make_files(place, stored)
        place.send(encode(stored[0]))
        assert place.outcome(TRACE_ID) == "fail"
        yield place


def _said(body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer as a provider does who has an honest model, and embeddings without any meaning."""
    if "messages" not in body:
        vectors = [{"object": "embedding", "index": n, "embedding": [1.0]} for n in range(len(body["input"]))]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "model": body["model"], "data": vectors, "usage": usage}
    asks_for_a_claim = "<<claim" in str(body["messages"][-1]["content"])
    if body.get("logprobs") and not asks_for_a_claim:
        return completion(body, "", p_yes=0.9)
    return gullible_reply(body)


def _config(export: str) -> dict[str, Any]:
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "telemetry": {"listen": "127.0.0.1:0"},
        "assemble": {"quiet_period": "200ms", "deadline": "1s"},
        "judge": {"use": "lexical"},
        "export": [{"endpoint": export}],
    }


def _stored() -> Sequence[Sequence[Span]]:
    """Return traces of the last hour."""
    answers = ("Refunds take 30 days.", "Refunds take 14 days.", "Refunds take 14 days.")
    an_hour_ago = time.time_ns() - 3_600 * 10**9
    traces = [rag_trace(n, answer=answer, start_ns=an_hour_ago) for n, answer in enumerate(answers)]
    return [[replace(span, trace_id=TRACE_ID) for span in traces[0]], *traces[1:]]


def _make_programs(folder: Path) -> None:
    folder.mkdir()
    for name, line in _PROGRAMS.items():
        program = folder / name
        program.write_text(f"#!/bin/bash\n{line.replace('PYTHON', sys.executable)}\n")
        program.chmod(0o755)


def _make_files(place: Place, stored: Sequence[Sequence[Span]]) -> None:
    """Make the files that the documents name, with ragtrace where it makes them."""
    for name in ("records.jsonl", "cases.jsonl"):
        _write_lines(place.folder / name, _RECORDS)
    for name in ("labeled.jsonl", "LABELED.jsonl"):
        _write_lines(place.folder / name, _LABELED)
    (place.folder / "traces.jsonl").write_text("".join(f"{encode_json(spans)}\n" for spans in stored))
    (place.folder / "examples").symlink_to(ROOT / "examples")
    (place.folder / "app.py").symlink_to(ROOT / "examples" / "minimal_rag.py")
    run = place.run("ragtrace calibrate labeled.jsonl --judge openai:gpt-4o-mini --save judge.json")
    assert run.returncode == 0, run.stderr
    for name, model in (("old", "gpt-4o-mini"), ("new", "gpt-4.1")):
        _backfill(place, name, model)
    with collector_process(place.folder, _config(f"grpc://{place.back_end}")) as collector:
        replace(place, collector=collector).send(encode(stored[0]))
        pages = replace(place, collector=collector)
        eventually(lambda: pages._settled(TRACE_ID), what="a verdict in the reader's store")


def _backfill(place: Place, name: str, model: str) -> None:
    run = place.run(
        f"ragtrace backfill --from otlp-file:traces.jsonl --to otlp-file:{name}.jsonl --judge openai:{model} "
        f"--transcripts {name}.db --progress {name}.progress"
    )
    assert run.returncode == 0, run.stderr


def _write_lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
