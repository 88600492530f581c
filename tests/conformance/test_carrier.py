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
    a_chunk_verdict,
    a_claim,
    a_failure,
    a_record,
    a_result,
    an_evaluation,
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
EVALUATIONS = [
    pytest.param(FAIL, id="fail"),
    pytest.param(an_evaluation(a_failure()), id="error"),
    pytest.param(an_evaluation(a_result(score=None, skip_reason=SkipReason.NO_CONTENT)), id="skipped"),
    pytest.param(an_evaluation(a_result(), a_failure("relevance"), a_result(metric="recall")), id="several"),
    pytest.param(
        an_evaluation(
            a_result(a_claim(0, VerdictLabel.RELEVANT), metric="answer_relevance"),
            a_result(a_claim(0, VerdictLabel.UNSUPPORTED, kind="reference"), metric="context_recall"),
            a_result(
                metric="context_precision", chunk_verdicts=(a_chunk_verdict(0, VerdictLabel.IRRELEVANT),)
            ),
        ),
        id="statements, reference and chunks",
    ),
]


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


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_openinference_evaluations_are_flat_zero_based_and_complete(evaluation: Evaluation) -> None:
    attributes = a_carrier(evaluation, openinference=True).attributes
    keys = [key.split(".") for key in attributes if key.startswith("evaluations.")]
    assert {(len(key), key[2]) for key in keys} == {(4, "evaluation")}
    assert {int(key[1]) for key in keys} == set(range(len(evaluation.outcomes)))
    for index in range(len(evaluation.outcomes)):
        fields = {key[3]: attributes[".".join(key)] for key in keys if key[1] == str(index)}
        assert isinstance(fields["name"], str)
        assert fields.keys() & {"score", "label", "explanation"}
        assert fields["annotator_kind"] in ("HUMAN", "LLM", "CODE")
        assert isinstance(fields.get("score", 0.0), float)
        assert isinstance(json.loads(str(fields["metadata"])), dict)


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_genai_result_event_stands_once_for_each_metric(evaluation: Evaluation) -> None:
    events = [event for event in a_carrier(evaluation).events if event.name == "gen_ai.evaluation.result"]
    assert len(events) == len(evaluation.outcomes)
    for event in events:
        assert event.attributes["gen_ai.evaluation.name"]
        is_failure = "error.type" in event.attributes
        assert is_failure or "gen_ai.evaluation.score.label" in event.attributes
        assert not (is_failure and "gen_ai.evaluation.score.value" in event.attributes)


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_own_keys_stand_under_ragtrace_only(evaluation: Evaluation) -> None:
    span = a_carrier(evaluation)
    known = {
        "gen_ai.operation.name",
        "gen_ai.response.id",
        "gen_ai.conversation.id",
        "gen_ai.evaluation.name",
        "gen_ai.evaluation.score.value",
        "gen_ai.evaluation.score.label",
        "gen_ai.evaluation.explanation",
    }
    keys = {*span.attributes, *(key for event in span.events for key in event.attributes)}
    assert {key for key in keys if key.startswith("gen_ai.")} <= known
