"""The anchor set: answers whose labels are known, which the judge judges again and again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

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
