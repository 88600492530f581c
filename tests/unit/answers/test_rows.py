"""A line of a report read back is the answer that was written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from ragtrace.answers.rows import ReportLine, is_report, read_line, report_lines
from ragtrace.errors import InputError
from ragtrace.escaping import one_json_line
from ragtrace.model import Evaluation, JudgeIdentity, MetricOutcome, MetricResult
from ragtrace.outcomes import JudgedAnswer
from ragtrace.reports import answer_row
from ragtrace.traces.attach import Sample
from tests.unit.answers.evaluations import Judged, judged
from tests.unit.reports import judged_answers

LAW = settings(max_examples=60, deadline=None)
OUT_OF_RANGE = b'{"metric": "m", "status": "ok", "label": "fail", "score": 7}'
SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)


def line_of(answer: JudgedAnswer, **changed: Any) -> ReportLine:
    row = {**answer_row(answer), **changed}
    return ReportLine("report.jsonl, line 7", f"{one_json_line(row)}\n".encode())


@LAW
@given(judged())
def test_line_of_a_report_read_back_is_what_was_written(case: Judged) -> None:
    wrote = JudgedAnswer(
        record=case.record,
        evaluation=case.evaluation,
        sample=SAMPLE,
        carrier_span_id="cd" * 8,
        cost_usd=0.25,
    )
    version = read_line(line_of(wrote))
    read = version.judged
    assert (version.evaluation_id, version.carrier, version.notices) == ("cd" * 8, None, ())
    assert (read.sample, read.cost_usd, read.service) == (SAMPLE, 0.25, "support-bot")
    assert (read.record.question, read.record.answer) == (case.record.question, case.record.answer)
    assert read.record.chunks == case.record.chunks
    assert read.evaluation == told(case.evaluation)


def told(evaluation: Evaluation) -> Evaluation:
    """Leave out what no report has: the run, digests of prompts, how a judge works, and places in lists."""
    return replace(
        evaluation,
        run_id="",
        started_at_ns=evaluation.started_at_ns // 1_000 * 1_000,
        outcomes=tuple(map(_told_outcome, evaluation.outcomes)),
    )


def _told_outcome(outcome: MetricOutcome) -> MetricOutcome:
    if not isinstance(outcome, MetricResult):
        return outcome
    return replace(
        outcome,
        prompt_sha256=None,
        judge=JudgeIdentity(provider="lexical", model="lexical") if outcome.judge else None,
        verdicts=tuple(
            replace(verdict, claim=replace(verdict.claim, index=index))
            for index, verdict in enumerate(outcome.verdicts)
        ),
    )


def an_answer() -> JudgedAnswer:
    return judged_answers.judged(3)


def test_report_of_a_newer_version_shows_what_is_known() -> None:
    (notice,) = read_line(line_of(an_answer(), version=2, news="value")).notices
    assert notice.startswith("A newer ragtrace wrote this report (version 2")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"version": 1, "record_id": "a", ', "line 7: is not JSON: was the report written to its end?"),
        (b"[1]", "line 7: is no answer of a report: `it`: model_type"),
        (b'{"version": 1, "record_id": "a"}', "line 7: is no answer of a report: `metrics`: missing"),
        (
            b'{"version": 1, "record_id": "a", "metrics": [{"metric": "m", "status": "a secret"}]}',
            "line 7: is no answer of a report: `metrics.0.status`: literal_error",
        ),
        (
            b'{"version": 1, "record_id": "a", "metrics": [%s]}' % OUT_OF_RANGE,
            "line 7: is no answer of a report: `metrics.0.score`: less_than_equal",
        ),
    ],
)
def test_what_is_no_line_of_a_report_is_told_without_quoting_it(line: bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_line(ReportLine("report.jsonl, line 7", line))
    assert str(raised.value) == f"report.jsonl, {said}"


def test_report_is_told_from_other_files() -> None:
    assert is_report(line_of(an_answer()).text)
    assert not is_report(b'{"resourceSpans": []}')
    assert not is_report(b'{"question": "How?", "answer": "So."}')


def test_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        list(report_lines(tmp_path / "report.jsonl"))
    assert json.loads(line_of(an_answer()).text)["version"] == 1


def test_what_no_page_can_show_is_replaced() -> None:
    line = line_of(an_answer(), question="a mark: \\ud800")
    line = line._replace(text=line.text.replace(b"\\\\ud800", b"\\ud800"))
    assert read_line(line).judged.record.question == "a mark: \ufffd"
