"""The demo's answers, judged by what its annotators said: the verdict is the one that a person would give."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import pytest

import ragtrace
from ragtrace.cli.demo.traffic import DemoAnswer, ReplayedRag, load_sample
from ragtrace.cli.demo.verdicts import TraceVerdict, VerdictFile
from ragtrace.sentences import split_sentences
from tests.acceptance.collector_process import collector_process
from tests.backends.process import eventually

pytestmark = pytest.mark.slow

SAMPLE = {answer.id: answer for answer in load_sample()}
ROWS = [
    json.loads(line)
    for line in (files("ragtrace.cli") / "data" / "ragtruth_qa_sample.jsonl").read_text("utf-8").splitlines()
]
LABELS = {"supported": "supported", "contradicted": "contradicted", "neutral": "not_mentioned"}
"""What the annotators call it, and what a judge does."""


def script() -> Mapping[str, Any]:
    """Write down what a judge says that agrees with the annotators: each of their sentences is a claim."""
    # The longest first: one answer is the first sentence of another, and is looked for within it.
    longest_first = sorted(ROWS, key=lambda row: -len(row["answer"]))
    return {
        "answers": {row["answer"]: {"claims": list(claims(row))} for row in longest_first},
        "claims": {
            sentence["text"]: verdict(row, sentence["label"]) for row in ROWS for sentence in row["claims"]
        },
    }


def claims(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    at = 0
    for sentence in row["claims"]:
        start = row["answer"].index(sentence["text"], at)
        at = start + len(sentence["text"])
        covered = [
            part.number for part in split_sentences(row["answer"]) if part.start < at and part.end > start
        ]
        yield {"text": sentence["text"], "sentences": covered}


def verdict(row: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    """Quote some sentence of the passages: which one the annotators thought of, they did not write down."""
    if LABELS[label] == "not_mentioned":
        return {"label": "not_mentioned"}
    quote = split_sentences(row["contexts"][0]["text"])[0].text
    return {"label": LABELS[label], "chunks": [1], "quote": quote}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, TraceVerdict]:
    """Send all 24 through a collector, and read the verdicts off its carriers; by the answers' ids."""
    folder = tmp_path_factory.mktemp("people")
    (folder / "script.json").write_text(json.dumps(script()))
    config = {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "telemetry": {"listen": None},
        "assemble": {"quiet_period": "200ms", "deadline": "5s"},
        "judge": {"use": f"scripted:{folder / 'script.json'}"},
        "export": [{"endpoint": f"otlp-file:{folder / 'verdicts.jsonl'}"}],
        "store": {"path": str(folder / "store.db")},
    }
    file, read = VerdictFile(folder / "verdicts.jsonl"), {}
    with collector_process(folder, config) as collector:
        sent = ask_all(f"http://127.0.0.1:{collector.grpc_port}")

        def all_are_judged() -> bool:
            read.update({sent[verdict.trace_id].id: verdict for verdict in file.new()})
            return len(read) == len(sent)

        eventually(all_are_judged, what="a verdict on each answer", deadline_s=30)
    return read


def ask_all(endpoint: str) -> Mapping[str, DemoAnswer]:
    """Ask every question, and return the answers by their trace ids."""
    ragtrace.instrument(service_name="people", endpoint=endpoint, protocol="grpc")
    try:
        application = ReplayedRag(tuple(SAMPLE.values()))
        return {application.answer(answer.question): answer for answer in SAMPLE.values()}
    finally:
        ragtrace.uninstrument()


def test_what_people_marked_fails_and_nothing_else_does(verdicts: Mapping[str, TraceVerdict]) -> None:
    by_people = {answer.id: "pass" if answer.is_faithful else "fail" for answer in SAMPLE.values()}
    assert Counter(by_people.values()) == {"pass": 12, "fail": 12}
    assert {each: verdict.label for each, verdict in verdicts.items()} == by_people
