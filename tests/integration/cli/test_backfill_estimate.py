"""``ragtrace backfill``: what it says beforehand that it will cost, and what it then costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.corpora import CORPORA, Corpus
from tests.integration.cli.program import json_lines, run
from tests.typical_model import TypicalModel, running_typical_model
from tests.unit.backfill.stored_traces import write_traces

AMOUNTS = ("calls", "input_tokens", "output_tokens", "usd")
PER_MILLION = {
    "gpt-4o-mini": (0.15, 0.60),
    "gpt-4.1-nano": (0.10, 0.40),
    "gpt-4o": (2.50, 10.0),
    "gpt-4.1": (2.0, 8.0),
}


def told(*args: str) -> Mapping[str, Any]:
    result = run("backfill", *args, "--json")
    assert result.exit_code == 0, result.output
    (line,) = json_lines(result.stdout)
    return line


def actual(model: TypicalModel, name: str) -> dict[str, float]:
    """What the provider counted."""
    of_input, of_output = PER_MILLION[name]
    usd = (model.input_tokens * of_input + model.output_tokens * of_output) / 1e6
    amounts = (model.calls, model.input_tokens, model.output_tokens, usd)
    return dict(zip(AMOUNTS, amounts, strict=True))


def misses(estimate: Mapping[str, Any], spent: Mapping[str, float]) -> dict[str, Any]:
    return {
        name: (estimate[name], amount)
        for name, amount in spent.items()
        if not estimate[name]["low"] - 1e-9 <= amount <= estimate[name]["high"] + 1e-9
    }


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA.values(), ids=CORPORA.keys())
def test_the_run_costs_what_the_dry_run_said_from_sizes_and_from_a_pilot(
    corpus: Corpus, tmp_path: Path
) -> None:
    source = write_traces(tmp_path / "traces.jsonl", corpus.traces())
    with running_typical_model(corpus.habits) as model:
        judge = ("--judge", f"openai:{corpus.model}", "--base-url", model.url, "--metrics", corpus.metrics)
        args = ("--from", f"otlp-file:{source}", "--to", f"otlp-file:{tmp_path / 'verdicts.jsonl'}", *judge)
        sizes = told(*args, "--dry-run")["estimate"]
        assert model.calls == 0
        pilot = told(*args, "--dry-run", "--pilot", "15")
        report = told(*args, "--yes")
    spent = actual(model, corpus.model)
    assert (pilot["pilot"]["usage"]["calls"] + report["usage"]["calls"]) == spent["calls"]
    assert (misses(sizes, spent), misses(pilot["estimate"], spent)) == ({}, {})
