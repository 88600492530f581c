"""The carrier against the conventions it promises to follow, and against a golden copy of itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace.model import Evaluation, Sample, SkipReason, VerdictLabel
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.otlp import decode, encode, encode_json
from ragtrace.traces.trace import Scope, Span
from tests.unit.traces.builders import (
    MS,
    START_NS,
    TRACE_ID,
    a_chunk_verdict,
    a_claim,
    a_failure,
    a_record,
    a_result,
    an_evaluation,
    span_id,
)

DATA = Path(__file__).parent.parent / "data"
REGENERATE = "REGENERATE_GOLDEN"
FAIL = an_evaluation(
    a_result(
        a_claim(
            0, VerdictLabel.CONTRADICTED, text="Orders can be returned within 30 days.", chunk_ids=("faq-12",)
        ),
        a_claim(1, VerdictLabel.SUPPORTED, text="Refunds take 5 working days.", chunk_ids=("faq-12",)),
        explanation="1 of 2 claims contradicted",
    )
)
EVALUATIONS = (
    FAIL,
    an_evaluation(a_failure()),
    an_evaluation(a_result(score=None, skip_reason=SkipReason.NO_CONTENT)),
    an_evaluation(a_result(), a_failure("relevance"), a_result(metric="recall")),
    an_evaluation(
        a_result(a_claim(0, VerdictLabel.RELEVANT), metric="answer_relevance"),
        a_result(a_claim(0, VerdictLabel.UNSUPPORTED, kind="reference"), metric="context_recall"),
        a_result(metric="context_precision", chunk_verdicts=(a_chunk_verdict(0, VerdictLabel.IRRELEVANT),)),
    ),
)
KNOWN = {
    *("gen_ai.operation.name", "gen_ai.response.id", "gen_ai.conversation.id", "gen_ai.evaluation.name"),
    *("gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label", "gen_ai.evaluation.explanation"),
}


def a_carrier(evaluation: Evaluation, *, openinference: bool = False) -> Span:
    return carrier(
        evaluation,
        a_record(),
        sample=Sample(rule="ratio", rate=0.25, probability=0.25),
        options=AttachOptions(carrier_time="target", openinference=openinference),
        now_ns=START_NS + 60_000 * MS,
    )


def test_carrier_is_the_golden_one() -> None:
    """A change here changes what users search for: bump ``SCHEMA_VERSION`` unless it only adds."""
    span = replace(a_carrier(FAIL), scope=Scope(name="ragtrace.evaluation", version="golden"))
    golden, readable = DATA / "carrier.golden.pb", DATA / "carrier.golden.json"
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        golden.write_bytes(encode([span]))
        readable.write_text(json.dumps(json.loads(encode_json([span])), indent=2, ensure_ascii=False) + "\n")
    assert decode(golden.read_bytes()) == (span,), f"run once with {REGENERATE}=1 if this is meant"
    assert encode([span]) == golden.read_bytes()
    assert json.loads(encode_json([span])) == json.loads(readable.read_text())


@pytest.mark.parametrize("evaluation", EVALUATIONS, ids=range(5))
def test_carrier_keeps_to_openinference_and_to_genai(evaluation: Evaluation) -> None:
    span = a_carrier(evaluation)
    assert [(link.trace_id, link.span_id) for link in span.links] == [(TRACE_ID, span_id(3))]
    assert span.attributes["openinference.span.kind"] == "EVALUATOR"
    keys = {*span.attributes, *(key for event in span.events for key in event.attributes)}
    assert {key for key in keys if key.startswith("gen_ai.")} <= KNOWN
    events = [event for event in span.events if event.name == "gen_ai.evaluation.result"]
    assert len(events) == len(evaluation.outcomes)
    for event in events:
        assert event.attributes["gen_ai.evaluation.name"]
        is_failure = "error.type" in event.attributes
        assert is_failure or "gen_ai.evaluation.score.label" in event.attributes
        assert not (is_failure and "gen_ai.evaluation.score.value" in event.attributes)
    attributes = a_carrier(evaluation, openinference=True).attributes
    found = [key.split(".") for key in attributes if key.startswith("evaluations.")]
    assert {(len(key), key[2]) for key in found} == {(4, "evaluation")}
    assert {int(key[1]) for key in found} == set(range(len(evaluation.outcomes)))
    for index in range(len(evaluation.outcomes)):
        fields = {key[3]: attributes[".".join(key)] for key in found if key[1] == str(index)}
        assert isinstance(fields["name"], str)
        assert fields.keys() & {"score", "label", "explanation"}
        assert fields["annotator_kind"] in ("HUMAN", "LLM", "CODE")
        assert isinstance(fields.get("score", 0.0), float)
        assert isinstance(json.loads(str(fields["metadata"])), dict)
