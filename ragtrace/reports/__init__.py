"""Reports: files with the judged answers, for people and for programs."""

from __future__ import annotations

from ragtrace.answers.rows import SCHEMA_VERSION
from ragtrace.outcomes import AnswerOutcome, JudgedAnswer, Status, outcome_of
from ragtrace.reports._formats import SUFFIXES, open_report
from ragtrace.reports._rows import AnswerRow, answer_row
from ragtrace.reports.report import Report, RunEnd, RunInfo, SkippedAnswers
