"""The anchors of the drift check, answers with known labels, and what a judge said of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

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
