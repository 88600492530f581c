"""The demo's answers, judged by what its annotators said: the verdict is the one that a person would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

import ragtrace
from ragtrace.answers.carrier import read_carrier
from ragtrace.cli.demo_run import PEOPLE_JUDGE, DemoAnswer, VerdictFile, ask, load_sample
from ragtrace.model import MetricResult
from tests.acceptance.collector_process import collector_process, settings_of
from tests.backends.process import eventually

pytestmark = pytest.mark.slow

SAMPLE = {answer.id: answer for answer in load_sample()}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, MetricResult]:
    """Send all 24 through a collector, and read the verdicts off its carriers; by the answers' ids."""
    folder = tmp_path_factory.mktemp("people")
    file, read = VerdictFile(folder / "out.jsonl"), {}
    with collector_process(folder, settings_of(folder, judge={"use": PEOPLE_JUDGE})) as collector:
        sent = ask_all(f"http://127.0.0.1:{collector.grpc_port}")

        def all_are_judged() -> bool:
            for carrier in file.new():
                answer = sent[carrier.trace_id]
                (result,) = read_carrier(carrier, answer.record).judged.evaluation.results
                read[answer.id] = result
            return len(read) == len(sent)

        eventually(all_are_judged, what="a verdict on each answer", deadline_s=30)
    return read


def ask_all(endpoint: str) -> Mapping[str, DemoAnswer]:
    """Ask every question, and return the answers by their trace ids."""
    ragtrace.instrument(service_name="people", endpoint=endpoint, protocol="grpc")
    try:
        return {ask(answer): answer for answer in SAMPLE.values()}
    finally:
        ragtrace.uninstrument()


def test_what_people_marked_fails_and_nothing_else_does(verdicts: Mapping[str, MetricResult]) -> None:
    by_people = {answer.id: "fail" if answer.marked_sentences else "pass" for answer in SAMPLE.values()}
    assert Counter(by_people.values()) == {"pass": 12, "fail": 12}
    assert {each: verdict.label for each, verdict in verdicts.items()} == by_people


def test_what_contradicts_a_claim_is_quoted_and_the_reason_says_who_found_it(
    verdicts: Mapping[str, MetricResult],
) -> None:
    found = [claim for result in verdicts.values() for claim in result.verdicts]
    contradicted = [claim for claim in found if claim.label == "contradicted"]
    assert len(contradicted) == 4
    for claim in contradicted:
        assert claim.quote
        assert claim.reason is not None
        assert claim.reason.startswith("The annotators marked “")
        assert "ragtrace's authors looked up the quote" in claim.reason
    assert all(claim.quote is None for claim in found if claim.label == "unsupported")
