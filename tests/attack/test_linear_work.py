"""Foreign text takes CPU linear in its length, whatever it is made of, and never holds up the event loop."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from json import JSONDecoder
from types import FrameType
from typing import Any, Final

import pytest

from ragtrace._row_fields import UnreadableValue, written_value
from ragtrace.http import Body, UnreadableBody
from ragtrace.judge import open_judge
from ragtrace.judge.phrases import declines, is_meta, without_source
from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply
from ragtrace.judge_forms import VerifyReply
from ragtrace.metrics._evidence import FoldedText
from ragtrace.model import MetricFailure, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.records import RecordRow, record_of
from ragtrace.sentences import split_sentences
from ragtrace.traces.extract import extract_records
from ragtrace.traces.trace import Trace
from tests.attack.hostile_judge import Said, completion, hostile_judge
from tests.integration.cli.test_citations import rag
from tests.reading.kinds import oi, spans_of
from tests.reading.unseen import langfuse

_LENGTH: Final = 16_000
_TIMES: Final = 4
_TOLERANCE: Final = 3
_NOISE_S: Final = 0.2

PIECES: Final = [
    "<think>", "<think>{", "</think>", '{"a":', "{", "[", "{}", "{'a':", "{'", '\\"', "\\'", '"', "'", ",",
    ", ", " ", "\t", "\n", "a", "a ", "aa", "1", "1 000 ", "1.", "[1,", "[1](", "(Smith ", "((", "<a>", "<",
    "**", "a: b\n", "// ", "{//", "data: {}\n", "```json\n", "<|a|>", "page_content='a' ",
    "Document(page_content=", '{"id":1},',
]  # fmt: skip


def replied(text: str) -> None:
    with suppress(InvalidReply, NotJson):
        parse_reply(text, VerifyReply)


def cell(text: str) -> None:
    with suppress(UnreadableValue):
        written_value(text)


def quote(text: str) -> None:
    folded = FoldedText(text)
    for sought in (text[:900] + "z", "a" * 500, "aa", "1", "A  a"):
        folded.find(sought)


def packed(text: str) -> None:
    body = Body("gzip", most_bytes=1 << 24)
    with suppress(UnreadableBody):
        body.take(b"".join(gzip.compress(text[at : at + 200].encode()) for at in range(0, len(text), 200)))


READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "a judge's reply": replied,
    "a cell of a file": cell,
    "an answer of a file": lambda text: record_of(RecordRow(answer=text), "r"),
    "a quote": quote,
    "gzip members": packed,
    "sentences": split_sentences,
    "a refusal": declines,
    "a mark of a source": without_source,
    "a sentence about the answer": is_meta,
}
FRAMES: Final[Mapping[str, Callable[[str], str]]] = {
    "alone": str,
    "behind an open object": lambda text: f'{{"verdicts": [{text}',
    "before an end": lambda text: f"{text}}}]\\",
}


@pytest.fixture(autouse=True)
def no_collection_of_garbage() -> Iterator[None]:
    """Leave it to other tests: what they left behind takes as long as much reading."""
    gc.disable()
    yield
    gc.enable()


def cpu_s(read: Callable[[str], object], text: str) -> float:
    started = time.thread_time()
    read(text)
    return time.thread_time() - started


def slow_of(read: Callable[[str], object], frame: Callable[[str], str] = str) -> Mapping[str, object]:
    """Return the pieces of which a longer text takes too much longer."""
    slow = {}
    for piece in PIECES:
        short, long = (frame(piece * (size // len(piece))) for size in (_LENGTH, _TIMES * _LENGTH))
        once, grown = cpu_s(read, short), cpu_s(read, long)
        if grown > max(_TIMES * _TOLERANCE * once, _NOISE_S):
            slow[piece] = once, grown
    return slow


@pytest.mark.parametrize("reader", READERS)
def test_work_grows_no_faster_than_the_text(reader: str) -> None:
    for name, frame in FRAMES.items():
        assert slow_of(READERS[reader], frame) == {}, name


REPLIES: Final[Mapping[str, Callable[[int], str]]] = {
    "thoughts without an end": lambda size: "<think>" * (size // 7),
    "objects without number": lambda size: "{}" * (size // 2),
}


@pytest.mark.parametrize("convention", ["langfuse", "openinference"])
@pytest.mark.parametrize("end", [0, -3], ids=["whole", "cut off"])
def test_the_json_of_an_attribute_is_parsed_once(convention: str, end: int) -> None:
    padding = "Refunds take 14 days. " * 5_000
    asked = [{"role": "user", "content": "How long?"}, {"role": "tool", "content": padding}]
    said = [{"role": "assistant", "content": "14 days.", "citations": [{"cited_text": padding}]}]
    given, answered = (json.dumps(each) for each in (asked, said))
    texts = (given, answered[:end] if end else answered)
    node = langfuse("generation", *texts) if convention == "langfuse" else oi("LLM", *texts)
    spans = spans_of(convention, rag(node))
    parsed: Counter[tuple[str, int]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is JSONDecoder.raw_decode.__code__:
            parsed[frame.f_locals["s"], frame.f_locals["idx"]] += 1

    sys.setprofile(count)
    try:
        extract_records(Trace.of(spans[0].trace_id, spans))
    finally:
        sys.setprofile(None)
    assert {each for each, _ in parsed}.issuperset(texts)
    assert max(parsed.values()) == 1


@pytest.mark.parametrize("shape", REPLIES)
async def test_a_reply_of_a_megabyte_does_not_hold_up_the_loop(shape: str) -> None:
    record = RagRecord.of(question="?", contexts=["Refunds take 14 days."], answer="Refunds take 14 days.")
    text, longest_s = REPLIES[shape](1_000_000), 0.0

    async def beat() -> None:
        nonlocal longest_s
        while True:
            started = time.monotonic()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.monotonic() - started)

    def rule(request: Mapping[str, Any]) -> Said:
        return Said(body=completion(request, text=text))

    with hostile_judge(rule) as server:
        judge = open_judge("openai:m", base_url=server.base_url, environ={}, max_retries=0)
        beating = asyncio.create_task(beat())
        started = time.process_time()
        [outcome] = (await evaluate(record, judge=judge)).outcomes
        spent_s = time.process_time() - started
        beating.cancel()
        await judge.aclose()
    assert isinstance(outcome, MetricFailure)
    assert outcome.error_type == "judge_nonsense"
    assert longest_s < 1.0  # where it was 10 s
    assert spent_s < 20  # with the beats
