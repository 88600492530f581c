"""Answers that people have labelled, claim by claim: JSON lines in.

A row holds ``contexts``, ``claims[{text, label}]`` and, if there are, ``id``, ``question``, ``answer`` and
``answer_label``; the field names of RAGAS and DeepEval are understood. A label is ``supported``,
``contradicted`` or ``neutral`` (also written ``unsupported`` or ``not_mentioned``), or null where people
did not agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field

from ragtrace.model import Claim, RagRecord
from ragtrace.records import RECORD_NAMES, Contexts, RecordRow, Text, record_of
from ragtrace.rows import STRICT, Names, RowNotices, read_rows

__all__ = ["HumanLabel", "LabelledAnswer", "read_labelled"]


class HumanLabel(StrEnum):
    """What people say about a claim or an answer."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NEUTRAL = "neutral"
    """The context does not mention it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledAnswer:
    """An answer with what people say about it."""

    record: RagRecord
    claims: tuple[Claim, ...]
    """Those with a label."""
    labels: tuple[HumanLabel, ...]
    """One for each claim."""
    supported: bool | None
    """Whether the answer is faithful throughout; ``None`` where people did not say."""
    file: str
    """The name of the file, without folders."""
    left_out: int = 0
    """Claims without a label."""

    @property
    def has_unsupported(self) -> bool:
        """Whether a claim of it is labelled as not supported."""
        return any(label is not HumanLabel.SUPPORTED for label in self.labels)


def read_labelled(path: str | Path, *, notices: RowNotices = STRICT) -> Iterator[LabelledAnswer]:
    """Read labelled answers, as records are read; where ``notices`` does not raise, bad rows are left out.

    Raises:
        InputError: the file cannot be read; or, without ``notices``, a row is no labelled answer: names file,
            line and field.
    """
    file = "standard input" if str(path) == "-" else Path(path).name
    for row in read_rows(path, _Row, _NAMES, notices):
        yield _answer(row.form, file, row.place)


_SYNONYMS = {"unsupported": "neutral", "not_mentioned": "neutral"}


def _one_word(value: Any) -> Any:
    return _SYNONYMS.get(value, value) if isinstance(value, str) else value


_Label: TypeAlias = Annotated[HumanLabel | None, BeforeValidator(_one_word)]


class _Claim(BaseModel):
    text: Annotated[Text, Field(min_length=1)]
    label: _Label


class _Row(RecordRow):
    contexts: Contexts
    claims: list[_Claim]
    answer_label: _Label = None


_NAMES: Final = Names(
    written={**RECORD_NAMES.written, "claims": ["claims"], "answer_label": ["answer_label"]},
    likely=RECORD_NAMES.likely,
)


def _answer(row: _Row, file: str, place: str) -> LabelledAnswer:
    labelled = [(claim.text, claim.label) for claim in row.claims if claim.label is not None]
    record = record_of(row, place)
    return LabelledAnswer(
        record=replace(record, answer=row.answer or "\n".join(claim.text for claim in row.claims)),
        claims=tuple(Claim(index=index, text=text) for index, (text, _) in enumerate(labelled)),
        labels=tuple(label for _, label in labelled),
        supported=_is_supported(row),
        file=file,
        left_out=len(row.claims) - len(labelled),
    )


def _is_supported(row: _Row) -> bool | None:
    if "answer_label" in row.model_fields_set:
        return None if row.answer_label is None else row.answer_label is HumanLabel.SUPPORTED
    labels = [claim.label for claim in row.claims]
    if any(label not in (HumanLabel.SUPPORTED, None) for label in labels):
        return False
    return None if None in labels or not labels else True
