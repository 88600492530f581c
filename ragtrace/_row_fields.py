"""The fields of a row under the names that people and tools give them, and the values in them.

A value may be written as text: JSON, Python's and numpy's forms of lists, documents and nodes. Nothing is
evaluated. Reading takes linear time; a value that nests too deeply is refused.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple


def plain_name(name: object) -> str:
    """Return a name as it is compared: ``actualOutput`` is ``actual_output`` is ``Actual output``."""
    return "".join(letter for letter in str(name) if letter not in "_- .").lower()


class FieldConflict(ValueError):
    """Two names of one field have different values."""


@dataclass(frozen=True, kw_only=True)
class FieldNames:
    """The accepted names of a row's fields."""

    written: Mapping[str, Sequence[str]]
    """The names of each field of the form, our own first."""
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names that are read if the row has none of the others: they may mean something else beside those."""
    of_others: frozenset[str] = frozenset()
    """What `ragtrace export-records` writes for other commands: passed over without a warning."""

    @cached_property
    def _plain(self) -> frozenset[str]:
        return frozenset(map(plain_name, self.known))

    @property
    def known(self) -> frozenset[str]:
        """All accepted names."""
        names = chain(self.written.values(), self.also.values())
        return frozenset(chain.from_iterable(names))

    def is_known(self, name: object) -> bool:
        """Return whether a field has this name, in any spelling."""
        return plain_name(name) in self._plain

    def nearest(self, name: str) -> str | None:
        """Return the accepted name that is most likely meant."""
        near = get_close_matches(name.lower(), sorted(self.known), n=1, cutoff=_NEAR)
        return near[0] if near else None

    def chosen(self, row: Mapping[Any, Any]) -> ChosenFields:
        """Find each field of a row.

        DeepEval's ``context`` beside a ``retrieval_context`` is its ideal context, which the generator did
        not see: it counts as unknown.

        Raises:
            FieldConflict: the row has one field under two names, with different values.
        """
        there: dict[str, list[Any]] = {}
        for key in row:
            there.setdefault(plain_name(key), []).append(key)
        if any(given(row[key]) is not None for key in there.get("retrievalcontext", ())):
            there.pop("context", None)
        by_field: dict[str, tuple[str, Any]] = {}
        used: set[Any] = {key for key in row if key in self.of_others}
        for each, written in self.written.items():
            for names in (written, self.also.get(each, ())):
                keys = [key for name in names for key in there.get(plain_name(name), ())]
                said = [key for key in keys if given(row[key]) is not None]
                if said and by_field.get(each, ("", None))[1] is None:
                    used.update(keys)
                    by_field[each] = _agreed(row, said, each)
                elif not said:
                    used.update(keys)
                    if keys:
                        by_field.setdefault(each, (str(keys[0]), None))
        return ChosenFields(by_field, frozenset(key for key in row if key not in used))


class ChosenFields(NamedTuple):
    """What of a row is read."""

    by_field: Mapping[str, tuple[str, Any]]
    """The name in the row and the value of each field that it has."""
    unknown: frozenset[Any]
    """The names that are not read."""


def _agreed(row: Mapping[Any, Any], keys: Sequence[Any], field_name: str) -> tuple[str, Any]:
    first, *others = keys
    for other in others:
        if _listed(row[other]) != _listed(row[first]):
            raise FieldConflict(
                f"fields `{first}` and `{other}` both name the {field_name}, but differ: keep one of them"
            )
    return str(first), given(row[first])


def _listed(value: Any) -> Any:
    plain = given(value)
    return [plain] if isinstance(plain, str) else plain


RECORD_FIELDS: Final = FieldNames(
    written={
        "id": ["id"],
        "question": ["question", "user_input", "input", "query"],
        "contexts": ["contexts", "context", "retrieved_contexts", "retrieval_context"],
        "answer": ["answer", "response", "actual_output", "output"],
        "reference": ["reference", "expected_output"],
        "reference_chunk_ids": ["reference_chunk_ids", "reference_context_ids", "reference_ids"],
        "provider_citations": ["provider_citations"],
        "earlier_turns": ["earlier_turns"],
        "prompt_version": ["prompt_version"],
        "model": ["model"],
    },
    also={
        "question": ["user_question", "user_query", "prompt"],
        "contexts": [
            *("source_documents", "retrieved_documents", "retrieved_docs", "retrieved_chunks", "documents"),
            *("docs", "chunks", "passages", "retrieved_passages", "source_nodes", "search_results"),
        ],
        "answer": [
            *("generated_answer", "model_answer", "final_answer", "result", "completion", "generation"),
            *("prediction", "generated_text", "output_text", "response_text"),
        ],
        "reference": [
            *("ground_truth", "ground_truths", "expected_answer", "reference_answer", "gold_answer"),
            *("golden_answer", "correct_answer", "expected"),
        ],
        "reference_chunk_ids": [
            *("relevant_ids", "relevant_chunk_ids", "relevant_doc_ids", "relevant_document_ids"),
            *("expected_ids", "expected_chunk_ids", "expected_doc_ids", "gold_ids", "ground_truth_ids"),
        ],
    },
    of_others=frozenset({"claims", "answer_label", "sample_probability"}),
)
"""The accepted names of a record's fields."""
_NEAR: Final = 0.75
_MISSING: Final = frozenset({"nan", "NaN", "NaT", "None", "null", "NULL", "<NA>"})
"""How tables write a missing value as text."""


def given(value: Any) -> Any:
    """Return a value without the types of numpy, pandas and polars; ``None`` if it is missing."""
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, str):
        return None if value.strip() in _MISSING else value
    for to_list in ("tolist", "to_list", "to_pylist"):
        if hasattr(value, to_list) and not isinstance(value, type):
            return given(getattr(value, to_list)())
    try:
        return None if value != value else value  # NaN and NaT
    except (TypeError, ValueError):  # pandas.NA is neither; a comparison of arrays has no truth
        return None if type(value).__name__ == "NAType" else value


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a mapping, dataclass, named tuple, pydantic model or plain object, or ``None``."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type | str | bytes | int | float | list | set | frozenset) or value is None:
        return None
    if dataclasses.is_dataclass(value):
        names: Iterable[str] = (each.name for each in dataclasses.fields(value))
    else:
        of_model = getattr(type(value), "model_fields", None) or getattr(type(value), "__fields__", None)
        known: Iterable[str] | None = of_model or getattr(value, "_fields", None)
        names = vars_of(value) if known is None else known
    found = {name: getattr(value, name, None) for name in names if not name.startswith("_")}
    return found or None


def vars_of(value: Any) -> Iterable[str]:
    """Return the names of an object's own attributes."""
    named: Iterable[str] = getattr(value, "__dict__", None) or getattr(type(value), "__slots__", None) or ()
    return named


def ids_in(value: Any) -> tuple[str, ...]:
    """Return ids as texts: of a list, of one as a table writes it, or a single one.

    Raises:
        UnreadableValue: they are something else.
    """
    value = given(value)
    listed = written_value(value) if isinstance(value, str) else value
    listed = [value] if not isinstance(listed, list | tuple) and isinstance(value, str | int) else listed
    if listed is None or value == "":
        return ()
    if not isinstance(listed, list | tuple) or not all(
        isinstance(each, str | int) and not isinstance(each, bool) for each in listed
    ):
        raise UnreadableValue("must be a list of ids, each a string or a whole number")
    return tuple(map(str, listed))


def contexts_in(value: Any) -> Any:
    """Return contexts as a list of ``{"id", "text", "score", "metadata"}``, whose values nobody checked yet.

    A text is one context, or the written form of a list, a document or an object. ``None`` if they are
    missing. A value of another form is returned as it is.

    Raises:
        UnreadableValue: a text begins as a list or a document, and cannot be read to its end.
    """
    value = given(value)
    if isinstance(value, str):
        if not value.strip():
            return None
        written = written_value(value)
        value = written if _are_contexts(written) else value
    if isinstance(value, Mapping) and value and all(isinstance(text, str) for text in value.values()):
        by_id = None if _is_document(value) else [{"id": key, "text": text} for key, text in value.items()]
        value = by_id or value
    if isinstance(value, str) or (fields_of(value) is not None and not isinstance(value, tuple)):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    there = [each for each in map(given, value) if each is not None and each != ""]
    return None if value and not there else [context_in(each) for each in there]


def _are_contexts(written: Any) -> bool:
    """Return whether a written value is a document or a list of contexts; a text may be JSON itself."""
    if isinstance(written, Mapping):
        return "text" in _document(written, 0)
    return isinstance(written, list) and all(
        given(each) is None or isinstance(each, str) or _is_document(each) or _is_scored(each)
        for each in written
    )


def _is_document(value: object) -> bool:
    return isinstance(value, Mapping) and (not value or bool(_document(value, 0)))


def _is_scored(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == _PAIR
        and not isinstance(given(value[0]), int | float | list | tuple)
        and isinstance(given(value[1]), int | float)
    )


_PAIR: Final = 2


def context_in(item: Any) -> Any:
    """Return one context as ``{"id", "text", "score", "metadata"}``, or as it is if it has another form."""
    if isinstance(item, str):
        written = written_value(item) if "=" in item[:_HEAD_CHARS] else item
        return _document(written, 0) if isinstance(written, Mapping) else {"text": item}
    if _is_scored(item):
        found = context_in(item[0])
        return {**found, "score": given(item[1])} if isinstance(found, dict) else found
    return _document(item, 0) if fields_of(item) is not None else item


_HEAD_CHARS: Final = 100
_TEXT: Final = (
    *("text", "content", "page_content", "document", "passage", "chunk", "snippet", "body"),
    *("chunk_text", "chunk_content", "passage_text", "text_content", "text_resource"),
)
_HOLDERS: Final = ("node", "doc", "payload", "properties", "_source", "entity", "fields", "metadata")
"""Fields in which stores and frameworks keep the document itself."""
_IDS: Final = ("id", "id_", "_id", "chunk_id", "node_id", "doc_id", "document_id", "uuid")
_SCORES: Final = ("score", "_score", "relevance_score", "similarity")
_METADATA: Final = ("metadata", "meta", "extra_info")
_MOST_HELD: Final = 4


def _document(item: Any, depth: int) -> dict[str, Any]:
    """Return what of the id, text, score and metadata a document has."""
    named: dict[str, Any] = {}
    for key, value in (fields_of(item) or {}).items():
        named.setdefault(plain_name(key), given(value))
    found: dict[str, Any] = {}
    if _first(named, _TEXT) is not None:
        found = _text(_first(named, _TEXT), depth)
    elif depth < _MOST_HELD:
        held = (
            _document(named[plain_name(name)], depth + 1) for name in _HOLDERS if plain_name(name) in named
        )
        found = next((document for document in held if "text" in document), {})
    if "text" not in found and any(plain_name(name) in named for name in _TEXT):
        found["text"] = None  # only its id is known
    metadata = _first(named, _METADATA)
    own = {
        "id": _first(named, _IDS)
        if not isinstance(metadata, Mapping)
        else _first(named, _IDS) or metadata.get("id"),
        "score": _first(named, _SCORES),
        "metadata": metadata,
    }
    return found | {name: value for name, value in own.items() if value is not None}


def _text(value: Any, depth: int) -> dict[str, Any]:
    """Return a text, that of a document within, or that of the parts of a message."""
    if isinstance(value, list | tuple):
        parts = [part if isinstance(part, str) else _document(part, _MOST_HELD).get("text") for part in value]
        return {"text": "\n".join(part for part in parts if isinstance(part, str))}
    inner = _document(value, depth + 1) if depth < _MOST_HELD and fields_of(value) is not None else {}
    return inner if "text" in inner else {"text": value}


def _first(named: Mapping[Any, Any], names: Sequence[str]) -> Any:
    values = (named.get(plain_name(name)) for name in names)
    return next((value for value in values if value is not None), None)


class UnreadableValue(ValueError):
    """A text begins like a list or a document, and cannot be read to its end. The message quotes nothing."""


def written_value(text: str) -> object:
    """Return the list, object or document that a text is the written form of; else the text itself.

    An object of a class, such as ``Document(page_content='…', metadata={…})``, is a mapping of its arguments.

    Raises:
        UnreadableValue: it begins as a list or a document, and goes on in another way, or left items out.
    """
    if not _BEGINS.match(text):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _value(_parsed(text))
    except (UnreadableValue, SyntaxError, ValueError, RecursionError, MemoryError):
        if _IS_SURE.match(text):
            raise UnreadableValue(_UNREADABLE) from None
        return text


_UNREADABLE: Final = "cannot be read, or leaves items out (`...`): write whole values, by `json.dumps`"
_QUOTED: Final = r"""(?:'(?:[^'\\]++|\\.?)*+(?:'|\Z)|"(?:[^"\\]++|\\.?)*+(?:"|\Z))"""
"""A text in quotes. One that is not closed reaches to the end: no other is sought behind each quote."""
_NAMES: Final = "page_content|pageContent|id_?|text|content|metadata|node|document"
_DOCUMENT: Final = rf"(?:{_NAMES})\s*+=\s*+['\"\w{{<]"
_BEGINS: Final = re.compile(rf"\s*+(?:[\[({{]|[A-Za-z_][\w.]*+\(|{_DOCUMENT})")
_IS_SURE: Final = re.compile(
    rf"\s*+(?:\[\s*+(?:['\"]\s*+\w|[A-Za-z_][\w.]*+\()|[A-Z]\w*+\({_DOCUMENT}|page_content=['\"])", re.ASCII
)
_ARGUMENTS: Final = re.compile(rf"\s*+{_DOCUMENT}")
_ENDING: Final = re.compile(
    rf"(?P<value>{_QUOTED}|[\])}}])|(?P<object><(?:[^<>'\"]++|{_QUOTED})*+>)|(?P<dots>…)"
    r"|(?<![\w.])(?P<named>[A-Za-z_]\w*+):(?=\s)|=\s*+(?P<id>[0-9a-f]{32,64})\b",
    re.DOTALL,
)
"""The ends of values, and what Haystack's documents have: ``Document(id=9f…, content: '…')``."""
_GAP: Final = re.compile(r"\s+(?=[^\s\])},:=])")
_CUT_CHARS: Final = 100
"""Of a text that Haystack's documents show."""
_CONSTANTS: Final = {
    **dict.fromkeys(("nan", "NaN", "NaT", "null")),
    "true": True,
    "false": False,
    "inf": math.inf,
}


def _parsed(text: str) -> ast.expr:
    """Parse a value, with the commas that numpy leaves out, and with ``<objects>`` as texts."""

    def with_comma(found: re.Match[str]) -> str:
        if found["named"] or found["id"]:
            return f"{found['named']}=" if found["named"] else f"={found['id']!r}"
        value = found["value"] or ("..." if found["dots"] else repr(found["object"]))
        comma = ", " if _GAP.match(text, found.end()) else ""
        return value.replace("\r", "\\r").replace("\n", "\\n") + comma

    source = _ENDING.sub(with_comma, text := text.strip())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python does not know
        return ast.parse(f"_({source})" if _ARGUMENTS.match(text) else source, mode="eval").body


def _value(node: ast.expr) -> object:
    """Return the value of an expression, of which nothing is evaluated."""
    match node:
        case ast.Constant(value) if value is not ...:
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        case ast.List(items) | ast.Tuple(items) | ast.Set(items):
            return [_value(item) for item in items]
        case ast.Dict(keys, values) if None not in keys:
            return {str(_value(key)): _value(value) for key, value in zip(keys, values, strict=True) if key}
        case ast.UnaryOp(ast.USub() | ast.UAdd(), ast.Constant()):
            return ast.literal_eval(node)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), ast.Name("inf" | "nan")):
            return float(ast.unparse(node))
        case ast.Name(name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Attribute() if _is_dotted(node):  # a member of an enumeration
            return ast.unparse(node)
        case ast.Call(called, unnamed, named) if _is_dotted(called):
            if len(unnamed) == 1:  # such as `np.str_('…')` and `array([…], dtype=object)`
                return _value(unnamed[0])
            if unnamed or not named:
                return ast.unparse(node)
            given = {str(each.arg): _value(each.value) for each in named}
            if any(isinstance(each, str) and each[_CUT_CHARS:] == "..." for each in given.values()):
                raise UnreadableValue(_UNREADABLE)
            return given
    raise UnreadableValue(_UNREADABLE)


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
