"""Judged answers of a file: the lines of a report, or of `ragtrace evaluate --json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ragtrace.answers.rows import ReportLine, is_report, read_line, report_lines
from ragtrace.errors import InputError
from ragtrace.model import (
    Claim,
    Direction,
    Evaluation,
    JudgedAnswer,
    JudgeIdentity,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictLabel,
)


def holds_judged(path: Path) -> bool:
    """Return whether a file begins as one that `read_judged` reads."""
    first = next(report_lines(path), None)
    return first is not None and (is_report(first.text) or _outcome_in(first) is not None)


def read_judged(path: Path) -> Iterator[JudgedAnswer]:
    """Yield the answers of a file, those of lines of ``--json`` without their texts.

    Raises:
        InputError: it cannot be read, or a line is of another form; names file and line, and quotes nothing.
    """
    answer: JudgedAnswer | None = None
    for line in report_lines(path):
        if is_report(line.text):
            yield read_line(line).judged
            continue
        found = _outcome_in(line)
        if found is None:
            raise InputError(f"{line.where}: is neither an answer of a report nor a line of evaluate --json")
        if answer is None or answer.record.id != found.record.id:
            if answer is not None:
                yield answer
            answer = found
        else:
            outcomes = (*answer.evaluation.outcomes, *found.evaluation.outcomes)
            answer = replace(answer, evaluation=replace(answer.evaluation, outcomes=outcomes))
    if answer is not None:
        yield answer


def _outcome_in(line: ReportLine) -> JudgedAnswer | None:
    """Return an answer with the one outcome of a line, if it is one."""
    try:
        row = json.loads(line.text)
        return _answer(row) if row["status"] in ("ok", "skipped", "error") else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _answer(row: dict[str, Any]) -> JudgedAnswer:
    version, name = str(row["evaluator_version"]), str(row["id"])
    return JudgedAnswer(
        record=RagRecord(id=name, question=None, chunks=(), answer=None),
        evaluation=Evaluation(
            record_id=name,
            outcomes=(_outcome(row, version),),
            judge=JudgeIdentity.of_name(row["judge"]),
            evaluator_set=f"{row['metric']}/{row['profile']}",
            evaluator_version=version,
            run_id="",
            started_at_ns=0,
            duration_ms=0,
            input_sha256="",
        ),
    )


def _outcome(row: dict[str, Any], version: str) -> MetricOutcome:
    metric, profile = str(row["metric"]), str(row["profile"])
    if row["status"] == "error":
        return MetricFailure(
            metric=metric,
            profile=profile,
            error_type=str(row["error_type"]),
            message=str(row["explanation"]),
            evaluator_version=version,
        )
    known = {each.name for each in fields(Claim)} - {"text", "index"}
    return MetricResult(
        metric=metric,
        profile=profile,
        evaluator_version=version,
        score=row["score"],
        threshold=None,
        passed=row["label"] == Label.PASS,
        direction=Direction(row["direction"]),
        skip_reason=SkipReason(row["skip_reason"]) if row["skip_reason"] else None,
        verdicts=tuple(
            Verdict(
                claim=Claim(index=at, text=said["claim"], **{name: said[name] for name in known}),
                label=VerdictLabel(said["label"]),
            )
            for at, said in enumerate(row["verdicts"])
        ),
    )
