"""Reports: files with the judged answers, for people and for programs."""

from ragtrace.reports.report import (
    SUFFIXES,
    Report,
    RunEnd,
    RunInfo,
    SkippedAnswers,
    open_report,
)
