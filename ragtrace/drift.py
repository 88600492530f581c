"""Tells a changed judge from a changed system: the same labeled answers, judged again and again.

**One look.** If the judge is the same, a run is exchangeable with the runs before it, anchor by anchor:
each of the scores that an anchor ever got is as likely the last one. So, for a stake in [0, 1) and the
deviations ``d`` of an anchor's scores from their mean,

    prod over anchors of  1 + stake * d_last / (-lowest d)

has the expected value 1 (an e-value: Vovk and Wang, *E-values: calibration, combination and applications*,
Annals of Statistics 2021; the null of permutations within strata is that of Lehmann and Romano, *Testing
Statistical Hypotheses*, chapter 15). With ``-d`` it bets on lower scores. It is averaged over stakes, up
and down, scores and verdicts, and metrics: the average is an e-value too. An anchor that always gets the
same score has the factor 1, so it costs nothing. Half of the bets stake less on an anchor whose scores are
at odds.

**Many looks.** All looks share the first runs, so their e-values depend on each other and may not be
multiplied. Each look gets a weight, and the weights of all looks to come sum to 1. The weighted sum only
grows, and its expected value is at most 1 at every time: an e-process under any dependence. By Markov's
inequality it reaches ``1/alpha`` with a probability of at most ``alpha``, over the whole life of a
baseline.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import as_file, files
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

from ragtrace.errors import ConfigError, InputError
from ragtrace.labeled_data import LabeledAnswer, read_labeled
from ragtrace.model import RagRecord, content_sha256

BUILTIN: Final = "builtin"
FEWEST: Final = 5
"""With fewer anchors, hardly any change of a judge would show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One labeled answer."""

    id: str
    record: RagRecord
    supported: bool | None
    """Whether people call the answer faithful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSet:
    """The anchors, and the digest that names them."""

    anchors: tuple[Anchor, ...]

    @property
    def sha256(self) -> str:
        """Changes with any text or label."""
        digest = hashlib.sha256()
        for anchor in self.anchors:
            digest.update(f"{anchor.id}\0{anchor.supported}\0{content_sha256(anchor.record)}\n".encode())
        return digest.hexdigest()


def read_anchors(source: str | Path) -> AnchorSet:
    """Read a file of labeled answers, as `ragtrace calibrate` takes it; ``builtin`` is a sample of RAGTruth.

    Raises:
        ConfigError: it cannot be read, or has fewer than `FEWEST` answers.
    """
    try:
        if str(source) == BUILTIN:
            # data of the package, not an import of the commands
            with as_file(files("ragtrace") / "cli" / "data" / "ragtruth_qa_sample.jsonl") as path:
                answers = list(read_labeled(path))
        else:
            answers = list(read_labeled(source))
    except InputError as exc:
        raise ConfigError(f"`drift.anchors`: {exc}") from exc
    if len(answers) < FEWEST:
        raise ConfigError(
            f"`drift.anchors`: {str(source)!r} has {len(answers)} answers: it takes at least {FEWEST}, "
            "better 40, to see that a judge changed"
        )
    return AnchorSet(anchors=tuple(_anchors(answers)))


def _anchors(answers: Sequence[LabeledAnswer]) -> list[Anchor]:
    """Name the anchors by their ids; where an id comes twice, by its place too."""
    found: dict[str, Anchor] = {}
    for place, answer in enumerate(answers, 1):
        name = answer.record.id or f"row {place}"
        name = f"{name} (row {place})" if name in found else name
        found[name] = Anchor(id=name, record=replace(answer.record, id=name), supported=answer.supported)
    return list(found.values())


class RunResult(StrEnum):
    """What a run of the anchors showed."""

    BASELINE = "baseline"
    """The first complete run: later ones are compared with it."""
    STEADY = "steady"
    DRIFTED = "drifted"
    PARTIAL = "partial"
    """The budget ended it. It is compared with nothing."""
    FAILED = "failed"
    """The judge failed on too many anchors, or none got a score. It is compared with nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorScore:
    """What one metric said of one anchor."""

    anchor: str
    metric: str
    """``faithfulness``, or with another tool's profile ``faithfulness.ragas``."""
    score: float
    """In [0, 1]."""
    passed: bool
    supported: bool | None = None
    """The known label: whether people call the answer faithful. ``None`` where the label is not about this
    metric, or people did not agree."""

    @property
    def agrees(self) -> bool | None:
        """Whether the verdict is as labeled; ``None`` without a label."""
        return None if self.supported is None else self.passed == self.supported


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorRun:
    """One run: all anchors, judged once. It holds no content."""

    evaluator_version: str
    anchors_sha256: str
    """Names the set of anchors: another set is another ruler."""
    judge: str
    """``provider:model``."""
    began_ns: int
    ended_ns: int
    anchors: int
    """How many there are."""
    scores: tuple[AnchorScore, ...] = ()
    failed: int = 0
    """Anchors on which the judge failed. A failure is no score and no drift."""
    over_budget: int = 0
    """Anchors that were not judged because the budget was used up."""
    result: RunResult = RunResult.BASELINE
    evidence: float = 0.0
    """The e-process after this run: drift is told from 1/alpha on."""

    @property
    def series(self) -> tuple[str, str]:
        """Runs of the same evaluator on the same anchors are comparable."""
        return self.evaluator_version, self.anchors_sha256

    @property
    def is_complete(self) -> bool:
        """Whether it may be compared."""
        return self.result not in (RunResult.PARTIAL, RunResult.FAILED)

    @property
    def judged(self) -> int:
        """Anchors with at least one score."""
        return len({score.anchor for score in self.scores})

    def means(self) -> Mapping[str, float]:
        """Return the mean score of each metric."""
        found: dict[str, list[float]] = {}
        for score in self.scores:
            found.setdefault(score.metric, []).append(score.score)
        return {metric: sum(scores) / len(scores) for metric, scores in found.items()}

    def agreement(self) -> tuple[int, int]:
        """Return how many verdicts are as labeled, and how many have a label."""
        known = [score.agrees for score in self.scores if score.agrees is not None]
        return sum(known), len(known)

    def as_json(self) -> str:
        """Return all of it as a line of JSON."""
        row = {name: getattr(self, name) for name in self.__slots__ if name != "scores"}
        scores = [[s.anchor, s.metric, s.score, s.passed, s.supported] for s in self.scores]
        return json.dumps({**row, "scores": scores}, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> AnchorRun:
        """Read a run back."""
        row: dict[str, Any] = json.loads(text)
        names = ("anchor", "metric", "score", "passed", "supported")
        scores = tuple(AnchorScore(**dict(zip(names, of_one, strict=True))) for of_one in row.pop("scores"))
        return cls(**{**row, "result": RunResult(row["result"]), "scores": scores})


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorFlip:
    """An anchor whose verdict is another one than in the baseline."""

    anchor: str
    metric: str
    before: float
    """The mean score in the reference runs."""
    now: float


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class SeenModel:
    """Who answered in a judge's name: ``response.model`` and ``system_fingerprint`` of its replies."""

    requested: str
    """``provider:model``, as configured."""
    answered: str
    fingerprint: str = ""
    first_ns: int = 0
    last_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """What is known of the judge's steadiness now."""

    last: AnchorRun | None = None
    """The last complete run of this evaluator version on these anchors."""
    is_drifted: bool = False
    since_ns: int | None = None
    """When the run that first showed the drift began."""
    runs: Mapping[str, int] | None = None
    """By result, all that are kept."""
    model_changes: Mapping[str, int] | None = None
    """By requested model."""
    marks: tuple[tuple[int, str], ...] = ()
    """Times (Unix ns) from which a chart's scores may come from another judge, and why; the oldest first."""


REFERENCE_RUNS: Final = 7
"""So many first runs are the baseline. Later ones only compare: a slow drift does not become normal."""
DRIFT_FROM: Final = 100.0
"""What ``1/alpha`` is: of a hundred steady judges, one at most is ever accused."""
_STAKES: Final = (0.5, 0.9)
_EQUAL: Final = 1e-12
_YEAR: Final = 365
_MOST_LOG: Final = 500.0
"""A larger e-value is cut here: it stays one."""

_Values: TypeAlias = Mapping[tuple[str, str], float]
"""By metric and anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEvidence:
    """What one more run adds."""

    total: float
    """The e-process after the run."""
    e_value: float
    """Of this run alone."""

    @property
    def is_drift(self) -> bool:
        """Whether a steady judge reaches this in at most one of a hundred baselines."""
        return self.total >= DRIFT_FROM


def look_weight(look: int) -> float:
    """Return the weight of a look, counted from 1: half is spread over a year of days, half falls as 1/n².

    >>> sum(look_weight(look) for look in range(1, 100_000)) <= 1
    True
    """
    return 0.5 / (look * (look + 1)) + (0.5 / _YEAR if look <= _YEAR else 0.0)


def weigh(earlier: Sequence[AnchorRun], run: AnchorRun) -> DriftEvidence:
    """Compare a run with the complete runs of its series before it, the oldest first; at least one."""
    reference = earlier[:REFERENCE_RUNS]
    e_value = _mean(list(_e_values(reference, run)))
    return DriftEvidence(total=earlier[-1].evidence + look_weight(len(earlier)) * e_value, e_value=e_value)


def flips(earlier: Sequence[AnchorRun], run: AnchorRun) -> tuple[AnchorFlip, ...]:
    """Return the anchors whose verdict is another one than in most reference runs, the largest change first.

    An anchor on which the reference runs are at odds is left out.
    """
    reference = earlier[:REFERENCE_RUNS]
    passed, scores = ([_values(each_run, kind) for each_run in reference] for kind in ("passed", "score"))
    found = []
    for (metric, anchor), now in _values(run, "passed").items():
        before = [values[metric, anchor] for values in passed if (metric, anchor) in values]
        if not before or abs(sum(before) / len(before) - now) <= 0.5:
            continue
        old = [values[metric, anchor] for values in scores if (metric, anchor) in values]
        new = _values(run, "score")[metric, anchor]
        found.append(AnchorFlip(anchor=anchor, metric=metric, before=sum(old) / len(old), now=new))
    return tuple(sorted(found, key=lambda flip: (-abs(flip.now - flip.before), flip.anchor, flip.metric)))


def _e_values(reference: Sequence[AnchorRun], run: AnchorRun) -> Iterator[float]:
    """Yield an e-value for each metric, kind of value and bet."""
    for kind in ("score", "passed"):
        last, before = _values(run, kind), [_values(each_run, kind) for each_run in reference]
        for metric in dict.fromkeys(metric for metric, _ in last):
            pairs = [
                (now, [values[key] for values in before if key in values])
                for key, now in last.items()
                if key[0] == metric
            ]
            for stake, direction, is_wary in product(_STAKES, (1, -1), (False, True)):
                logs = (_log_factor(stake, direction, is_wary, *pair) for pair in pairs)
                yield math.exp(min(_MOST_LOG, sum(logs)))


def _log_factor(stake: float, direction: int, is_wary: bool, now: float, before: Sequence[float]) -> float:
    """Return the logarithm of an anchor's factor. Over all orders of its scores, factors have the mean 1."""
    scores = (now, *before)
    mean = sum(scores) / len(scores)
    lowest = min(direction * (score - mean) for score in scores)
    if lowest > -_EQUAL:
        return 0.0
    if is_wary:
        stake *= max(Counter(scores).values()) / len(scores)
    return math.log1p(stake * direction * (now - mean) / -lowest)


def _values(run: AnchorRun, kind: str) -> _Values:
    return {(score.metric, score.anchor): float(getattr(score, kind)) for score in run.scores}


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 1.0
