"""Take the pictures in the docs again: ``python -m tests.pictures``. They show what the demo shows.

The demo's answers go, under dates of the last two weeks, through a real collector that replays their
annotators' labels; a real browser looks at its page. On one of the days many more answers are wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from random import Random
from time import time_ns
from typing import Final

from PIL import Image
from playwright.sync_api import sync_playwright

from ragtrace import semconv
from ragtrace.answers.carrier import target_span_id
from ragtrace.backends import open_sink
from ragtrace.cli.demo_run import Backend, running_collector
from ragtrace.traces.otlp import decode_json, encode
from ragtrace.traces.trace import Span
from tests.backends.jaeger_server import running_jaeger
from tests.backends.process import eventually

_IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
_FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
_SETTLES_MS: Final = 600
"""For what moves when it is clicked."""
_DAY_NS: Final = 86_400 * 10**9
_DAYS, _A_DAY, _BAD_DAY = 14, 40, 3
_USUAL, _BAD = 0.12, 0.6
"""Shares of flawed answers, usually and on the bad day."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What to take a picture of: the file's name, the page, its height, and what to click first."""

    name: str
    url: str
    height: int
    click: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer of the demo, as its application sent it."""

    spans: Sequence[Span]
    is_faithful: bool

    def dated(self, begins_ns: int, trace_id: str) -> bytes:
        shift = begins_ns - min(span.start_ns for span in self.spans)
        return encode(
            replace(span, trace_id=trace_id, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift)
            for span in self.spans
        )


@contextmanager
def running_fortnight(folder: Path, backend: Backend | None) -> Iterator[Sequence[Picture]]:
    """Run a collector that judged two weeks of traffic, until the block ends; a back end gets it, too."""
    with running_collector(folder, backend) as collector:
        verdicts: dict[str, Span] = {}
        sent, last = asyncio.run(_send(_record(folder), collector.address, Random(18)))

        def all_are_judged() -> bool:
            verdicts.update(collector.carriers())
            return len(verdicts) == sent

        eventually(all_are_judged, what="a verdict on every answer", deadline_s=120)
        page = collector.page.rstrip("/")
        answer = f"{page}/answers/{last}/{target_span_id(verdicts[last])}"
        pictures = [
            Picture("answer.png", answer, 820),
            Picture("overview.png", f"{page}/?since=14d", 1010),
        ]
        if backend:
            url = f"{backend.ui}/trace/{last}?uiFind={verdicts[last].span_id}"
            claim = ".AccordianLogs--content .AccordianKeyValues--header >> nth=1"
            pictures.append(Picture("verdict-in-jaeger.png", url, 900, claim))
        yield pictures


def _record(folder: Path) -> Sequence[Recorded]:
    file = folder / "recorded.jsonl"
    command = [sys.executable, "-m", "ragtrace.cli", "demo", "--json", "--to", f"otlp-file:{file}"]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    *verdicts, _ = map(json.loads, finished.stdout.splitlines())
    people = [line for line in verdicts if line["judge"].startswith("human")]
    faithful: Mapping[str, bool] = {line["trace_id"]: line["label"] == "pass" for line in people}
    spans: dict[str, dict[str, Span]] = {trace_id: {} for trace_id in faithful}
    for line in file.read_text("utf-8").splitlines():
        for span in decode_json(line):
            if semconv.EVAL_STATUS not in span.attributes:
                spans[span.trace_id][span.span_id] = span
    return [Recorded([*spans[trace_id].values()], faithful[trace_id]) for trace_id in faithful]


async def _send(recorded: Sequence[Recorded], address: str, chance: Random) -> tuple[int, str]:
    """Send two weeks, and the answer whose wrong claim the demo shows; return how many, and its trace."""
    flawed = [answer for answer in recorded if not answer.is_faithful]
    clean = [answer for answer in recorded if answer.is_faithful]
    sink, now = open_sink(address.replace("http://", "grpc://")), time_ns()
    for days_ago in reversed(range(_DAYS)):
        share = _BAD if days_ago == _BAD_DAY else _USUAL
        for _ in range(_A_DAY):
            answer = chance.choice(flawed if chance.random() < share else clean)
            begins = now - days_ago * _DAY_NS - chance.randrange(_DAY_NS)
            await sink.send(answer.dated(begins, f"{chance.getrandbits(128):032x}"))
    worth_a_look = next(
        answer for answer in flawed if any("Gemini" in str(span.attributes) for span in answer.spans)
    )
    # of this minute: its verdict is beside it in Jaeger's timeline
    await sink.send(worth_a_look.dated(time_ns() - 60 * 10**9, last := f"{0xBAD:032x}"))
    await sink.aclose()
    return _DAYS * _A_DAY + 1, last


def take(picture: Picture, *, into: Path, chromium: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=[*_FLAGS])
        page = browser.new_page(viewport={"width": 1200, "height": picture.height}, device_scale_factor=1.25)
        page.goto(picture.url, wait_until="networkidle")
        if picture.click:
            page.locator(picture.click).first.click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(_SETTLES_MS)
        shot = page.screenshot(animations="disabled")
        browser.close()
    with Image.open(BytesIO(shot)) as image:
        image.convert("RGB").quantize(255).save(into / picture.name, optimize=True)


def main() -> int:
    """Take all pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--into", type=Path, default=_IMAGES, help="the folder for the pictures")
    parser.add_argument("--chromium", type=Path, default=os.environ.get("CHROMIUM", "/usr/bin/chromium"))
    parser.add_argument(
        "--jaeger",
        type=Path,
        help="the program `jaeger` with its page built in; without it, there is no picture of Jaeger",
    )
    options = parser.parse_args()
    if not Path(options.chromium).exists():
        parser.error(f"there is no {options.chromium}: install Chromium, or name one with --chromium")
    with ExitStack() as stack:
        folder, backend = Path(stack.enter_context(tempfile.TemporaryDirectory())), None
        if options.jaeger:
            jaeger = stack.enter_context(running_jaeger(options.jaeger, folder))
            backend = Backend(endpoint=f"grpc://{jaeger.otlp_grpc}", ui=jaeger.query_url)
        for picture in stack.enter_context(running_fortnight(folder, backend)):
            take(picture, into=options.into, chromium=Path(options.chromium))
            print(options.into / picture.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
