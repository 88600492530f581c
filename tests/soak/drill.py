"""A drill: what a collector says of itself while its judge, or its disk, is not as it should be.

    python -m tests.soak.drill --seconds 120

Each scene is a collector of its own on loopback, with answers coming in all the while and a real Prometheus
beside it that knows the shipped alerts. After the time, it prints what `/readyz`, `/metrics`, the alerts, the
log, the ledger and the page say, and what senders were answered.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import httpx

from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.attack.hostile_judge import Rule, Said, hostile_judge
from tests.backends.prometheus_server import Prometheus, running_prometheus
from tests.gullible_model import completion, gullible_reply
from tests.rag_spans import rag_trace
from tests.sharing import ROOT

_PAUSE_S: Final = 0.4
"""Between two answers."""
_CHUNK: Final = "Refunds take 14 days. " + random.Random(1).randbytes(6_000).hex(" ", 4)
"""No compression makes it small, and it takes 1,500 tokens at least."""
_RULES: Final = ROOT / "examples/deploy/prometheus"
_DISK_BYTES: Final = 4 << 20
_SERIES: Final = re.compile(
    r"^(ragtrace_judge_stopped|ragtrace_evaluation_coverage|ragtrace_evaluation_judged|ragtrace_collector_ready"
    r"|ragtrace_store_size_bytes|ragtrace_collector_requests_put_off_total)\S* \S+$",
    re.MULTILINE,
)


def well(body: Mapping[str, Any]) -> Said:
    """Be an honest judge."""
    return _said(gullible_reply(body))


def dead(_: Mapping[str, Any]) -> Said:
    """Be a gateway whose server is away."""
    return _said({}, status=503)


def liar(body: Mapping[str, Any]) -> Said:
    """Call everything supported, the canaries too."""
    said = json.loads(gullible_reply(body)["choices"][0]["message"]["content"])
    for verdict in said.get("verdicts", ()):
        verdict |= {"label": "supported", "chunks": [1]}
    return _said(completion(body, json.dumps(said)))


def refuser(_: Mapping[str, Any]) -> Said:
    """Refuse the key."""
    return _said({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, status=401)


def decliner(body: Mapping[str, Any]) -> Said:
    """Be a model that will not."""
    return _said(completion(body, "I'm sorry, but I can't help with that."))


def cutter(body: Mapping[str, Any]) -> Said:
    """Read the first part of each prompt only, as a small context does."""
    reply = gullible_reply(body)
    return _said({**reply, "usage": {"prompt_tokens": 256, "completion_tokens": 20, "total_tokens": 276}})


def sleeper(body: Mapping[str, Any]) -> Said:
    """Answer after the time-out."""
    time.sleep(5)
    return well(body)


def _said(told: Mapping[str, Any], *, status: int = 200) -> Said:
    return Said(status=status, body=json.dumps(told).encode())


SCENES: Final[Mapping[str, Rule]] = {
    "well": well,
    "dies": dead,
    "lies": liar,
    "refuses the key": refuser,
    "declines": decliner,
    "cuts": cutter,
    "slows down": sleeper,
    "store fills with finished answers": well,
    "store fills with waiting answers": refuser,
    "disk fills": dead,
}


@dataclass(frozen=True)
class Told:
    """What a collector says of itself."""

    readyz: str
    metrics: str
    alerts: str
    log: str
    ledger: str
    page: str
    senders: str


def main() -> None:
    """Run all scenes at once, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    seconds: float = parser.parse_args().seconds
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = {name: stack.enter_context(_scene(folder, name)) for name in SCENES}
        pages = {name: collector.pages_port or 0 for name, (collector, _) in running.items()}
        judging = folder / "judging-rules.yml"  # looked at more often than once a minute
        judging.write_text((_RULES / judging.name).read_text().replace("  interval: 1m\n", ""))
        rules = [_RULES / "alerts.yml", judging]
        prometheus = stack.enter_context(
            running_prometheus(folder, scrapes=pages, rule_files=rules, every="5s")
        )
        time.sleep(seconds)
        for name, (collector, answered) in running.items():
            told = _told(name, collector, prometheus, answered)
            print(f"\n{name}")
            for field in fields(told):
                print(f"  {field.name:8} {getattr(told, field.name)}")


@contextmanager
def _scene(folder: Path, name: str) -> Iterator[tuple[CollectorProcess, Counter[int]]]:
    """Run a collector with its judge, and send it answers until the block ends."""
    place = folder / name.replace(" ", "-")
    place.mkdir()
    answered: Counter[int] = Counter()
    with (
        _disk(place, is_small=name == "disk fills") as is_mounted,
        hostile_judge(SCENES[name]) as judge,
        collector_process(place, _config(name, judge.base_url)) as collector,
    ):
        if name == "disk fills" and not is_mounted:  # not root: no file may grow beyond it
            resource.prlimit(
                collector.process.pid, resource.RLIMIT_FSIZE, (_DISK_BYTES, resource.RLIM_INFINITY)
            )
        over = threading.Event()
        sender = threading.Thread(target=_send, args=(collector, over, answered), daemon=True)
        sender.start()
        try:
            yield collector, answered
        finally:
            over.set()
            sender.join()


@contextmanager
def _disk(place: Path, *, is_small: bool) -> Iterator[bool]:
    """Put a small disk there, if it is to be one and this user may; say whether it is there."""
    if not is_small or os.getuid() != 0:
        yield False
        return
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(place)]
    is_mounted = subprocess.run(mount, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(place)], check=True)


def _config(name: str, judge: str) -> Mapping[str, Any]:
    """Return a configuration whose waits are short: a drill lasts minutes."""
    return {
        "receive": {"grpc": None, "http": "127.0.0.1:0"},
        "telemetry": {"listen": "127.0.0.1:0"},
        "ui": {"listen": "127.0.0.1:0"},
        "assemble": {"quiet_period": "500ms"},
        "judge": {"use": "openai:m", "base_url": judge, "api_key": "none", "timeout": "3s"},
        "evaluate": {"retry_delays": ["2s", "5s"], "probe_delays": ["5s"]},
        "store": {"max_bytes": "1MiB" if name.startswith("store fills") else "64MiB"},
        "drain_timeout": "1s",
    }


def _send(collector: CollectorProcess, over: threading.Event, answered: Counter[int]) -> None:
    address = f"http://127.0.0.1:{collector.http_port}/v1/traces"
    number = 0
    with httpx.Client(timeout=30) as client:
        while not over.wait(_PAUSE_S):
            number += 1
            answer = "Refunds take 30 days." if number % 5 == 0 else "Refunds take 14 days."
            spans = rag_trace(number, chunks=(_CHUNK,), answer=answer, start_ns=time.time_ns())
            headers = {"content-type": "application/x-protobuf"}
            answered[client.post(address, content=encode(spans), headers=headers).status_code] += 1


def _told(
    name: str, collector: CollectorProcess, prometheus: Prometheus, answered: Mapping[int, int]
) -> Told:
    pages = f"http://127.0.0.1:{collector.pages_port}"
    with httpx.Client(timeout=30) as client:
        ready = client.get(f"{pages}/readyz")
        metrics = "\n".join(found[0] for found in _SERIES.finditer(client.get(f"{pages}/metrics").text))
        ledger = client.get(f"{pages}/ledger").json()
        page = client.get(f"http://127.0.0.1:{collector.ui_port}/").text
    alerts = {
        f"{series['alertname']} {series['alertstate']}"
        for series, _ in prometheus.series(f"ALERTS{{job={json.dumps(name)}}}")
    }
    log = [line for line in collector.log.read_text().splitlines() if " INFO " not in line]
    lines = Counter(re.sub(r"[0-9a-f]*\d[0-9a-f]*", "N", line[24:]) for line in log)
    notices = re.findall(r'<p class="bad">(.*?)</p>', page, re.DOTALL)
    return Told(
        readyz=f"{ready.status_code} {ready.text}",
        metrics=metrics.replace("\n", " | "),
        alerts=" | ".join(sorted(alerts)) or "none",
        log=" | ".join(f"{times} x {line}" for line, times in lines.most_common(4)) or "nothing but INFO",
        ledger=f"{ledger['seen']} seen: "
        + ", ".join(
            f"{each['number']} {each['state']} {each['reason']}".rstrip()
            for each in ledger["accounts"]
            if each["number"]
        ),
        page=" | ".join(notices) or "nothing is wrong",
        senders=", ".join(f"{times} x {status}" for status, times in sorted(answered.items())),
    )


if __name__ == "__main__":
    main()
