"""Log records of a carrier, without a sink."""

from __future__ import annotations

import re
from dataclasses import replace

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ragtrace.model import MetricFailure, MetricResult, Sample, SkipReason, VerdictLabel
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.logs import encode_evaluation_logs
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Span
from tests.unit.traces.builders import (
    MS,
    START_NS,
    a_claim,
    a_failure,
    a_record,
    a_result,
    an_evaluation,
)


def a_carrier(*outcomes: MetricResult | MetricFailure) -> Span:
    return carrier(
        an_evaluation(*outcomes),
        a_record(),
        sample=Sample(rule="ratio", rate=0.1, probability=0.1),
        options=AttachOptions(),
        now_ns=START_NS + 61_000 * MS,
    )


def records_of(*spans: Span) -> list[LogRecord]:
    request = ExportLogsServiceRequest.FromString(encode_evaluation_logs(spans))
    return [record for of in request.resource_logs for scope in of.scope_logs for record in scope.log_records]


def test_severity_and_text_tell_a_failing_answer_from_a_failed_metric_and_a_skipped_one() -> None:
    skipped = replace(a_result(score=None, metric="groundedness"), skip_reason=SkipReason.NO_RETRIEVAL)
    records = records_of(a_carrier(a_result(score=0.5), a_failure(metric="hallucination"), skipped))
    told = {record.body.string_value.partition(":")[0]: record.severity_text for record in records}
    assert told == {
        "faithfulness fail": "WARN",
        "hallucination error": "ERROR",
        "groundedness skipped": "INFO",
    }
    assert any(re.fullmatch(r"faithfulness fail: 0\.50", record.body.string_value) for record in records)


def test_only_wrong_claims_have_records_and_each_record_has_a_time_of_its_own() -> None:
    claims = [a_claim(number, label) for number, label in enumerate(VerdictLabel) if label in _SUPPORT]
    records = records_of(a_carrier(a_result(*claims)))
    assert sorted(record.event_name for record in records) == [
        "gen_ai.evaluation.result",
        "ragtrace.claim.contradicted",
        "ragtrace.claim.unsupported",
    ]
    assert len({record.time_unix_nano for record in records}) == 3


def test_a_carrier_that_was_sent_and_read_again_has_the_same_records() -> None:
    sent = a_carrier(a_result(a_claim(0, VerdictLabel.CONTRADICTED)))
    (read,) = decode(encode([sent]))
    assert encode_evaluation_logs([read]) == encode_evaluation_logs([sent])


_SUPPORT = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)
