"""A line of a report read back is the answer that was written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from ragtrace.answers.rows import ReportLine, answer_row, read_line
from ragtrace.errors import InputError
from ragtrace.model import JudgedAnswer, Sample
from ragtrace.text import one_json_line
from tests.unit.answers.evaluations import Judged, judged
from tests.unit.reports import judged_answers

SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)


def line_of(answer: JudgedAnswer, **changed: Any) -> ReportLine:
    row = {**answer_row(answer), **changed}
    return ReportLine("report.jsonl, line 7", f"{one_json_line(row)}\n".encode())


@given(judged())
def test_line_of_a_report_read_back_is_what_was_written(case: Judged) -> None:
    target = replace(case.record.target, resource={"a": b"\xff", "b": (1, 2.0, None, {"c": True})})  # type: ignore[type-var]
    wrote = JudgedAnswer(
        record=replace(case.record, target=target),
        evaluation=case.evaluation,
        sample=SAMPLE,
        carrier_span_id="cd" * 8,
        supersedes="ab" * 8,
        cost_usd=0.25,
    )
    version = read_line(line_of(wrote))
    assert version.judged == wrote
    assert (version.evaluation_id, version.carrier, version.notices) == ("cd" * 8, None, ())


def test_report_of_a_newer_version_shows_what_is_known() -> None:
    (notice,) = read_line(line_of(judged_answers.judged(3), version=3, news="value")).notices
    assert notice.startswith("A newer ragtrace wrote this report (version 3")


NO_ANSWER = "is no answer of a report"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"version": 2, "record_id": "a", ', "is not JSON: was the report written to its end?"),
        (b"[1]", f"{NO_ANSWER} that this ragtrace wrote"),
        (b'{"version": 1, "record_id": "a"}', f"{NO_ANSWER} that this ragtrace wrote"),
        (b'{"version": 2, "record_id": "a"}', f"{NO_ANSWER}: `judged`: dataclass_type"),
        (
            b'{"version": 2, "judged": {"record": "a secret"}}',
            f"{NO_ANSWER}: `judged.record`: dataclass_type",
        ),
    ],
)
def test_what_is_no_line_of_a_report_is_told_without_quoting_it(line: bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_line(ReportLine("report.jsonl, line 7", line))
    assert str(raised.value) == f"report.jsonl, line 7: {said}"


def test_what_no_page_can_show_is_replaced() -> None:
    line = line_of(judged_answers.judged(question="a mark: \\ud800"))
    line = line._replace(text=line.text.replace(b"\\\\ud800", b"\\ud800"))
    assert read_line(line).judged.record.question == "a mark: \ufffd"
