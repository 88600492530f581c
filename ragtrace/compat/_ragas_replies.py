"""What RAGAS makes of a reply: to the letter in the collections, with much good will in the metrics of old.

The collections take a JSON object and nothing around it, and no value of another type: a fence, a word before
it, ``true`` or ``"1"`` for 1 make it unreadable. The metrics of old look for the first JSON in a text, close
what was left open and convert values.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

FormT = TypeVar("FormT", bound=BaseModel)

_ORNAMENT = " \n\r\t`"


class RagasUnreadable(ValueError):
    """A reply is not of the form. The message tells the model what to correct."""


class Statements(BaseModel):
    """The statements of an answer."""

    statements: list[str]


class JudgedStatement(BaseModel):
    """A statement and whether the context supports it: any number but 0 says yes."""

    statement: str
    reason: str
    verdict: int


class JudgedStatements(BaseModel):
    """Verdicts on statements."""

    statements: list[JudgedStatement]


class MadeQuestionReply(BaseModel):
    """A question made from an answer."""

    question: str
    noncommittal: int


class Usefulness(BaseModel):
    """Whether a context was of use."""

    reason: str
    verdict: int


class Classification(BaseModel):
    """A statement of the reference and whether it can be traced back to the context."""

    statement: str
    reason: str
    attributed: int


class Classifications(BaseModel):
    """Verdicts on the statements of a reference."""

    classifications: list[Classification]


class Rating(BaseModel):
    """How well something does: 0, 1 or 2."""

    rating: int


class FixedText(BaseModel):
    """A reply that was brought into its form."""

    text: str


def read_to_the_letter(reply: str, form: type[FormT]) -> FormT:
    """Read a reply as the collections do.

    Raises:
        Unreadable: it is not of the form.
    """
    try:
        return form.model_validate_json(reply, strict=True)
    except ValidationError as exc:
        raise RagasUnreadable(_fault(exc)) from None


def read_leniently(reply: str, form: type[FormT]) -> FormT:
    """Read a reply as the metrics of old do.

    Raises:
        Unreadable: it is not of the form.
    """
    return read_repaired(_outermost(reply), form)


def read_repaired(reply: str, form: type[FormT]) -> FormT:
    """Read a reply that was repaired: as leniently, but there may be no prose around the JSON any more.

    Raises:
        Unreadable: it is not of the form.
    """
    try:
        return form.model_validate(_loose_json(reply))
    except ValidationError as exc:
        raise RagasUnreadable(_fault(exc)) from None


def _fault(exc: ValidationError) -> str:
    # the message of the exception itself would quote the reply
    first = exc.errors(include_input=False, include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"])) or "the reply"
    return f"{where}: {first['msg'].partition(' at line ')[0]}"


def _loose_json(reply: str) -> Any:
    found = reply.strip()
    behind_fence = found.partition("```")[2].removeprefix("json")
    for candidate in (found.strip(_ORNAMENT), behind_fence.strip(_ORNAMENT)):
        try:
            return _completed(candidate)
        except json.JSONDecodeError:
            continue
        except RecursionError:
            break
    raise RagasUnreadable("it holds no JSON")


def _outermost(text: str) -> str:
    """Return the first JSON structure of a text, counting brackets of its kind wherever they stand."""
    at = text.find("```json")
    text = text[at:] if at >= 0 else text
    start = next((index for index, char in enumerate(text) if char in "[{"), None)
    if start is None:
        return text
    opening, closing = text[start], {"[": "]", "{": "}"}[text[start]]
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == opening) - (text[index] == closing)
        if depth == 0:
            return text[start : index + 1]
    return text


def _completed(text: str) -> Any:
    """Parse a text, or what it may have become had it not been cut: ever less of it, closed.

    Raises:
        JSONDecodeError: there is nothing of it that can be parsed.
        RecursionError: it nests too deep.
    """
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as exc:
        fault = exc
    kept, missing, open_string, escaped = _scan(text)
    if missing is None:
        return None
    if open_string:
        kept = [*(kept[:-1] if escaped else kept), '"']
    ends = "".join(reversed(missing))
    length = len(kept)
    while length:
        try:
            return json.loads("".join(kept[:length]) + ends, strict=False)
        except json.JSONDecodeError as exc:
            length = min(length - 1, exc.pos)  # what follows a fault does not repair it
    raise fault


def _scan(text: str) -> tuple[list[str], list[str] | None, bool, bool]:
    """Return the characters with line breaks in strings escaped, the brackets still to be closed (``None``
    where one is closed that is not open), and whether the text ends in a string and behind a backslash."""
    kept: list[str] = []
    missing: list[str] = []
    in_string = escaped = False
    for char in text:
        kept.append("\\n" if in_string and char == "\n" and not escaped else char)
        if in_string:
            in_string = char != '"' or escaped
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string, escaped = True, False
        elif char in "{[":
            missing.append("}" if char == "{" else "]")
        elif char in "}]" and (not missing or missing.pop() != char):
            return kept, None, False, False
    return kept, missing, in_string, escaped
