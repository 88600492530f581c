"""A drill: what a collector says of itself while its judge, or its disk, is not as it should be.

    python -m tests.soak.drill --seconds 120

Each scene is a collector of its own on loopback, with answers coming in all the while. After the time, it
prints what `/readyz`, `/metrics`, the log, the ledger and the page say.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.attack.hostile_judge import Rule, Said, hostile_judge
from tests.gullible_model import completion, gullible_reply
from tests.rag_spans import rag_trace

_PAUSE_S: Final = 0.4
"""Between two answers."""
_CHUNK: Final = "Refunds take 14 days. " * 200
_SERIES: Final = re.compile(
    r"^(ragtrace_judge_stopped|ragtrace_evaluation_coverage|ragtrace_evaluation_judged|ragtrace_store_full"
    r"|ragtrace_receiver_refused_requests_total)\S* \S+$",
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
    "store fills": dead,
}


@dataclass(frozen=True)
class Told:
    """What a collector says of itself."""

    readyz: str
    metrics: str
    log: str
    ledger: str
    page: str


def main() -> None:
    """Run all scenes at once, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    seconds: float = parser.parse_args().seconds
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        began_s = time.monotonic()
        running = {name: stack.enter_context(_scene(folder, name)) for name in SCENES}
        time.sleep(max(0.0, seconds - (time.monotonic() - began_s)))
        for name, collector in running.items():
            told = _told(collector)
            print(f"\n{name}")
            for what in ("readyz", "metrics", "log", "ledger", "page"):
                print(f"  {what:8} {getattr(told, what)}")


@contextmanager
def _scene(folder: Path, name: str) -> Iterator[CollectorProcess]:
    """Run a collector with its judge, and send it answers until the block ends."""
    place = folder / name.replace(" ", "-")
    place.mkdir()
    with (
        hostile_judge(SCENES[name]) as judge,
        collector_process(place, _config(name, judge.base_url)) as collector,
    ):
        over = threading.Event()
        sender = threading.Thread(target=_send, args=(collector, over), daemon=True)
        sender.start()
        try:
            yield collector
        finally:
            over.set()
            sender.join()


def _config(name: str, judge: str) -> Mapping[str, Any]:
    """Return a configuration whose waits are short: a drill lasts minutes."""
    return {
        "receive": {"grpc": None, "http": "127.0.0.1:0"},
        "telemetry": {"listen": "127.0.0.1:0"},
        "ui": {"listen": "127.0.0.1:0"},
        "assemble": {"quiet_period": "500ms"},
        "judge": {"use": "openai:m", "base_url": judge, "api_key": "none", "timeout": "3s"},
        "evaluate": {"retry_delays": ["2s", "5s"], "probe_delays": ["5s"]},
        "store": {"max_bytes": "1MiB" if name == "store fills" else "64MiB"},
        "drain_timeout": "1s",
        "cancel_timeout": "1s",
    }


def _send(collector: CollectorProcess, over: threading.Event) -> None:
    address = f"http://127.0.0.1:{collector.http_port}/v1/traces"
    number = 0
    with httpx.Client(timeout=30) as client:
        while not over.wait(_PAUSE_S):
            number += 1
            answer = "Refunds take 30 days." if number % 5 == 0 else "Refunds take 14 days."
            spans = rag_trace(number, chunks=(_CHUNK,), answer=answer, start_ns=time.time_ns())
            client.post(address, content=encode(spans), headers={"content-type": "application/x-protobuf"})


def _told(collector: CollectorProcess) -> Told:
    pages = f"http://127.0.0.1:{collector.pages_port}"
    with httpx.Client(timeout=30) as client:
        ready = client.get(f"{pages}/readyz")
        metrics = "\n".join(found[0] for found in _SERIES.finditer(client.get(f"{pages}/metrics").text))
        ledger = client.get(f"{pages}/ledger").json()
        page = client.get(f"http://127.0.0.1:{collector.ui_port}/").text
    log = [line for line in collector.log.read_text().splitlines() if " INFO " not in line]
    lines = Counter(re.sub(r"[0-9a-f]*\d[0-9a-f]*", "N", line[24:]) for line in log)
    notices = re.findall(r'<p class="bad">(.*?)</p>', page, re.DOTALL)
    return Told(
        readyz=f"{ready.status_code} {ready.text}",
        metrics=metrics.replace("\n", " | "),
        log=" | ".join(f"{times} x {line}" for line, times in lines.most_common(4)) or "nothing but INFO",
        ledger=f"{ledger['seen']} seen: "
        + ", ".join(
            f"{each['number']} {each['state']} {each['reason']}".rstrip()
            for each in ledger["accounts"]
            if each["number"]
        ),
        page=" | ".join(notices) or "nothing is wrong",
    )


if __name__ == "__main__":
    main()
