"""Traces as people's tools write them, at a user's door: `ragtrace explain FILE --json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragtrace.traces.otlp import encode_json
from tests.integration.cli.program import run
from tests.reading.cases import Case, grade, reported
from tests.reading.kinds import held
from tests.reading.unseen import unseen
from tests.reading.unseen2 import NOT_YET, unseen2

CASES = (*reported(), *held())
"""The rows of the table in docs/reading.md."""


def wrongly_read(cases: Sequence[Case], file: Path) -> set[str]:
    """Explain all traces at once, and name the cases of which something else is said."""
    file.write_text("\n".join(encode_json(case.spans) for case in cases), encoding="utf-8")
    shown = run("explain", str(file), "--json")
    traces = {each["trace_id"]: each["records"] for each in map(json.loads, shown.stdout.splitlines())}
    return {
        f"{case.kind}-{case.name}" for case in cases if grade(case, traces[case.spans[0].trace_id]) != "right"
    }


def test_what_a_person_reads_in_a_trace_is_what_is_explained(tmp_path: Path) -> None:
    assert wrongly_read(CASES, tmp_path / "traces.jsonl") == set()


@pytest.mark.slow
def test_traces_that_were_written_without_a_look_at_the_reader(tmp_path: Path) -> None:
    wrong = wrongly_read((*unseen(), *unseen2()), tmp_path / "traces.jsonl")
    assert {name.split("-", 2)[2] for name in wrong} == NOT_YET


def test_each_kind_has_cases_that_nobody_reported() -> None:
    kinds = {case.kind for case in CASES}
    assert kinds >= {
        "answer",
        "many",
        "prompt",
        "hosted",
        "clock",
        "wrapped",
        "stream",
        "producer",
        "negative",
    }
