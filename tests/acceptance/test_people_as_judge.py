"""The demo's answers, judged by what its annotators said: the verdict is the one that a person would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

import ragtrace
from ragtrace.cli.demo.people import PEOPLE_JUDGE
from ragtrace.cli.demo.traffic import DemoAnswer, ReplayedRag, load_sample
from ragtrace.cli.demo.verdicts import TraceVerdict, VerdictFile
from tests.acceptance.collector_process import collector_process
from tests.backends.process import eventually

pytestmark = pytest.mark.slow

SAMPLE = {answer.id: answer for answer in load_sample()}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, TraceVerdict]:
    """Send all 24 through a collector, and read the verdicts off its carriers; by the answers' ids."""
    folder = tmp_path_factory.mktemp("people")
    config = {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "telemetry": {"listen": None},
        "assemble": {"quiet_period": "200ms", "deadline": "5s"},
        "judge": {"use": PEOPLE_JUDGE},
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


def test_what_contradicts_a_claim_is_quoted_and_the_reason_says_who_found_it(
    verdicts: Mapping[str, TraceVerdict],
) -> None:
    found = [claim for verdict in verdicts.values() for claim in verdict.findings]
    contradicted = [claim for claim in found if claim.verdict == "contradicted"]
    assert len(contradicted) == 4
    for claim in contradicted:
        assert claim.quote
        assert claim.reason is not None
        assert claim.reason.startswith("The annotators marked “")
        assert "ragtrace's authors looked up the quote" in claim.reason
    assert all(claim.quote is None for claim in found if claim.verdict == "unsupported")
