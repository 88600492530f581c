"""Answers that people have labelled, claim by claim: JSON lines in.

A row holds ``contexts``, ``claims[{text, label}]`` and, if there are, ``id``, ``question``, ``answer`` and
``answer_label``; the field names of RAGAS and DeepEval are understood. A label is ``supported``,
``contradicted`` or ``neutral`` (also written ``unsupported`` or ``not_mentioned``), or null where people
did not agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from ragtrace.errors import InputError
from ragtrace.model import Chunk, Claim, RagRecord

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


def read_labelled(path: str | Path) -> Iterator[LabelledAnswer]:
    """Read labelled answers from a JSON-lines file; empty lines are skipped.

    Raises:
        InputError: the file cannot be read, or a line is no labelled answer; names file, line and field.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as exc:
        raise InputError(f"{str(path)!r} cannot be read: {exc.strerror}") from exc
    for number, line in enumerate(lines, start=1):
        bare = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if bare.strip():
            yield _answer(_row(bare, f"{path}, line {number}"), Path(path).name, number)


_SYNONYMS = {"unsupported": "neutral", "not_mentioned": "neutral"}


def _clean(value: Any) -> Any:
    # lone surrogates have no UTF-8 form: no judge can be sent them
    return (
        value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if isinstance(value, str)
        else value
    )


def _in_an_object(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


def _one_word(value: Any) -> Any:
    return _SYNONYMS.get(value, value) if isinstance(value, str) else value


_Text: TypeAlias = Annotated[str, BeforeValidator(_clean)]
_Label: TypeAlias = Annotated[HumanLabel | None, BeforeValidator(_one_word)]


class _Context(BaseModel):
    id: str | None = None
    text: _Text


class _Claim(BaseModel):
    text: Annotated[_Text, Field(min_length=1)]
    label: _Label


class _Row(BaseModel):
    id: str | int | None = None
    question: _Text | None = Field(None, validation_alias=AliasChoices("question", "user_input", "input"))
    contexts: list[Annotated[_Context, BeforeValidator(_in_an_object)]] = Field(
        validation_alias=AliasChoices("contexts", "retrieved_contexts", "retrieval_context")
    )
    answer: _Text | None = Field(None, validation_alias=AliasChoices("answer", "response", "actual_output"))
    claims: list[_Claim]
    answer_label: _Label = None


def _row(line: bytes, where: str) -> _Row:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as exc:
        raise InputError(f"{where}: is not JSON: {exc.msg} at column {exc.colno}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where}: is not UTF-8, nests too deep, or a number is too long") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: is not a JSON object")
    try:
        return _Row.model_validate(value)
    except ValidationError as exc:
        # the message of the exception itself would quote the row
        fault = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        raise InputError(f"{where}: field `{'.'.join(map(str, fault['loc']))}`: {fault['msg']}") from None


def _answer(row: _Row, file: str, number: int) -> LabelledAnswer:
    labelled = [(claim.text, claim.label) for claim in row.claims if claim.label is not None]
    chunks = tuple(
        Chunk(id=context.id or str(rank), text=context.text, rank=rank)
        for rank, context in enumerate(row.contexts)
    )
    return LabelledAnswer(
        record=RagRecord(
            id=str(row.id or f"line-{number}"),
            question=row.question or None,
            chunks=chunks,
            answer=row.answer or "\n".join(claim.text for claim in row.claims),
        ),
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
