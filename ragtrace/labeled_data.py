"""Reads answers with human labels per claim from JSON lines.

A row has ``contexts``, ``claims[{text, label}]`` and optionally ``id``, ``question``, ``answer`` and
``answer_label``; the field names of RAGAS and DeepEval work too. A label is ``supported``,
``contradicted`` or ``unsupported`` (also written ``neutral`` or ``not_mentioned``), or null if people
did not agree. Instead of claims there may be ``criteria[{text, label}]`` of the answer, with the label true
or false (also written ``met`` or ``not_met``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from ragtrace._row_fields import RECORD_FIELDS
from ragtrace._row_files import STRICT, Row, RowNotices, read_rows
from ragtrace.errors import InputError
from ragtrace.judge.phrases import announces_answer
from ragtrace.model import OF_CRITERION, Claim, RagRecord
from ragtrace.records import Contexts, RecordRow, Text, record_of


class HumanLabel(StrEnum):
    """The human label of a claim or answer."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNSUPPORTED = "unsupported"
    """The context does not mention it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledAnswer:
    """An answer with human labels."""

    record: RagRecord
    claims: tuple[Claim, ...]
    """The labeled claims."""
    labels: tuple[HumanLabel, ...]
    """One label per claim."""
    supported: bool | None
    """Whether the whole answer is faithful; ``None`` without a label."""
    file: str
    """The name of the file, without folders."""
    left_out: int = 0
    """Claims without a label."""
    announcements: int = 0
    """Labeled lines about the answer itself, which are no claims: "Here's a summary in 92 words:"."""
    document: str | None = None
    """The name of the answer's document, shared by answers about the same one; ``None`` if unknown."""

    @property
    def of_criteria(self) -> bool:
        """Whether people labeled criteria that the answer meets or not, instead of its claims."""
        return any(claim.kind == OF_CRITERION for claim in self.claims)

    @property
    def has_unsupported(self) -> bool:
        """Whether a claim is labeled as not supported."""
        return any(label is not HumanLabel.SUPPORTED for label in self.labels)


def read_labeled(
    path: str | Path, *, group_by: str | None = None, notices: RowNotices = STRICT
) -> Iterator[LabeledAnswer]:
    """Read labeled answers, like records. If ``notices`` does not raise, bad rows are skipped.

    Answers with the same value in the field ``group_by`` are about the same document; without that field,
    answers with the same contexts.

    Raises:
        InputError: the file cannot be read or, without ``notices``, a row is not a labeled answer; names
            file, line and field.
    """
    file = "standard input" if str(path) == "-" else Path(path).name
    names = _NAMES
    if group_by is not None and group_by not in names.known:
        names = replace(names, written={**names.written, group_by: [group_by]})
    for row in read_rows(path, _Row, names, notices):
        if row.form.criteria and (row.given.get("claims") or not row.form.answer):
            notices.row_refused(
                InputError(f"{row.where}: `criteria` need an `answer`, and no `claims` beside them")
            )
            continue
        answer = _answer(row.form, file, row.place)
        yield replace(answer, document=_contexts(row.form) if group_by is None else _value(row, group_by))


_SYNONYMS: Mapping[str | bool, str] = {
    **dict.fromkeys(("neutral", "not_mentioned", "not_met", False), "unsupported"),
    **dict.fromkeys(("met", True), "supported"),
}


def _one_word(value: Any) -> Any:
    return _SYNONYMS.get(value, value) if isinstance(value, str | bool) else value


_Label: TypeAlias = Annotated[HumanLabel | None, BeforeValidator(_one_word)]


class _Claim(BaseModel):
    text: Annotated[Text, Field(min_length=1)]
    label: _Label


class _Row(RecordRow):
    contexts: Contexts
    claims: list[_Claim]
    answer_label: _Label = None
    criteria: list[Any] = []

    @model_validator(mode="before")
    @classmethod
    def _criteria_are_claims(cls, row: Any) -> Any:
        if not isinstance(row, dict) or not row.get("criteria"):
            return row
        return {**row, "claims": row["criteria"], "contexts": row.get("contexts") or []}


_OWN: Final = ("claims", "answer_label", "criteria")
_NAMES: Final = replace(RECORD_FIELDS, written={**RECORD_FIELDS.written, **{name: [name] for name in _OWN}})


def _answer(row: _Row, file: str, place: str) -> LabeledAnswer:
    kind = OF_CRITERION if row.criteria else "factual"
    claims = [claim for claim in row.claims if row.criteria or not announces_answer(claim.text)]
    labeled = [(claim.text, claim.label) for claim in claims if claim.label is not None]
    record = record_of(row, place)
    return LabeledAnswer(
        record=replace(record, answer=row.answer or "\n".join(claim.text for claim in row.claims)),
        claims=tuple(Claim(index=index, text=text, kind=kind) for index, (text, _) in enumerate(labeled)),
        labels=tuple(label for _, label in labeled),
        supported=_is_supported(row, claims),
        file=file,
        left_out=len(claims) - len(labeled),
        announcements=len(row.claims) - len(claims),
    )


def _contexts(row: _Row) -> str | None:
    """Name a document by its contexts in any order; an answer without contexts has its own document."""
    texts = sorted(context.text for context in row.contexts if context.text)
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest() if texts else None


def _value(row: Row[_Row], field: str) -> str | None:
    value = row.given.get(field)
    return None if value is None else json.dumps(value, sort_keys=True)


def _is_supported(row: _Row, claims: Sequence[_Claim]) -> bool | None:
    if "answer_label" in row.model_fields_set:
        return None if row.answer_label is None else row.answer_label is HumanLabel.SUPPORTED
    labels = [claim.label for claim in claims]
    if any(label not in (HumanLabel.SUPPORTED, None) for label in labels):
        return False
    return None if None in labels or not labels else True
