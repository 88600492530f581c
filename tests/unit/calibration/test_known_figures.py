"""Figures of one made-up measurement, as they were computed without numpy: exact, and intervals as wide."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace.calibration.measurement import CandidateRun, MeasuredAnswer
from ragtrace.calibration.summary import MeasurementPlan, stratum_of, summarize
from ragtrace.metrics.settings import VerifyForm
from tests.unit.calibration.measurements import C, N, S, U, candidate, measured, run

KNOWN = Path(__file__).parents[2] / "data" / "calibration_figures.json"
RESAMPLES = 4_000
NOISE = 0.06
"""What an end of an interval may move by, as a share of its width: three standard errors of its quantile."""


def members() -> Iterator[MeasuredAnswer]:
    """Yield answers of two files, with documents, ties, open claims, flips and failures."""
    world = random.Random(17)
    for at in range(150):
        human = "".join(world.choice("sssscn") for _ in range(world.randint(1, 5)))
        said = [CandidateRun(failure="judge_timeout") if world.random() < 0.05 else _json(human, world)]
        said.append(_json(human, world))
        support = [round(world.betavariate(*((3, 2) if each == "s" else (2, 3))), 2) for each in human]
        file = "one" if at % 3 else "two"
        made = measured(at, human, said, run(*support), file=file)
        yield replace(made, answer=replace(made.answer, document=f"document {at // 2}"))


def _json(human: str, world: random.Random) -> CandidateRun:
    right = {"s": S, "c": C, "n": N}
    return run(*(right[each] if world.random() < 0.75 else world.choice([S, N, U]) for each in human))


def figures() -> dict[str, Any]:
    found = list(members())
    population = Counter(stratum_of(each.answer) for each in found)
    plan = MeasurementPlan(
        population={stratum: 3 * size + stratum[1] for stratum, size in population.items()},
        sampled=True,
        resamples=RESAMPLES,
        seed=5,
    )
    candidates = [candidate(runs=2), candidate(VerifyForm.LOGPROBS)]
    results = summarize(found, candidates, plan, lambda *_: None)
    return json.loads(json.dumps(asdict(results)))  # type: ignore[no-any-return]


@pytest.mark.slow
def test_figures_are_the_known_ones() -> None:
    assert list(_differences(figures(), json.loads(KNOWN.read_text()), "")) == []


def _differences(found: Any, known: Any, where: str) -> Iterator[str]:
    if isinstance(known, dict) and known.keys() == {"value", "low", "high"} and known["low"] is not None:
        width = known["high"] - known["low"]
        bounds = {"value": 1e-9, "low": NOISE * width, "high": NOISE * width}
        for end, bound in bounds.items():
            if found[end] != pytest.approx(known[end], abs=bound):
                yield f"{where}.{end}: {found[end]} is not {known[end]}, in an interval {width} wide"
    elif isinstance(known, dict):
        assert found.keys() == known.keys(), where
        for key in known:
            yield from _differences(found[key], known[key], f"{where}.{key}")
    elif isinstance(known, list):
        assert len(found) == len(known), where
        for at, each in enumerate(known):
            yield from _differences(found[at], each, f"{where}[{at}]")
    elif found != (pytest.approx(known, abs=1e-9) if isinstance(known, float) else known):
        yield f"{where}: {found} is not {known}"
