"""Read values that somebody wrote as text: JSON, Python's and numpy's forms of lists, documents and nodes.

Nothing is evaluated. Reading takes linear time; a value that nests too deeply is refused.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Final


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
        return _Reader(text).whole()
    except UnreadableValue:
        if _IS_SURE.match(text):
            raise
        return text


_QUOTED: Final = r"""(?:'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+")"""
_DOCUMENT: Final = r"(?:page_content|pageContent|id_?|text|content|metadata|node|document)\s*+=\s*+['\"\w{<]"
_BEGINS: Final = re.compile(rf"\s*+(?:[\[({{]|[A-Za-z_][\w.]*+\(|{_DOCUMENT})")
_IS_SURE: Final = re.compile(
    rf"\s*+(?:\[\s*+(?:['\"]\s*+\w|[A-Za-z_][\w.]*+\()|[A-Z]\w*+\({_DOCUMENT}|page_content=['\"])", re.ASCII
)
_TOKEN: Final = re.compile(
    rf"""\s*+(?:
      (?P<text>[bBrRuU]{{0,2}}{_QUOTED})
    | (?P<number>[-+]?(?:\d[\d_]*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?(?![\w.]))
    | (?P<name>[-+]?[A-Za-z_](?:[\w]|\.(?=\w))*+)
    | (?P<dots>\.\.\.|…)
    | (?P<object><(?:[^<>'"]++|{_QUOTED})*+>)
    | (?P<mark>[\[\](){{}},:=])
    )""",
    re.VERBOSE | re.DOTALL,
)
_REST: Final = re.compile(r"\s*+\Z")
_UNQUOTED: Final = re.compile(r"\s*+([\w.-]++)\s*+(?=[,)])")
"""A value that Haystack's documents write without quotes: an id."""
_CONSTANTS: Final = {
    **dict.fromkeys(("None", "null", "nan", "NaN", "NaT", "<NA>")),
    **dict.fromkeys(("True", "true"), True),
    **dict.fromkeys(("False", "false"), False),
}
_ENDS: Final = {"[": "]", "(": ")", "{": "}"}
_DEEPEST: Final = 60
_MOST_DIGITS: Final = 300
_CUT_CHARS: Final = 100
"""Haystack cuts a document's text to so many, and writes ``...`` behind them."""


class _Reader:
    """Reads one value from its start to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> object:
        """Read the value that is all of the text: one value, or a document as ``name=value name=value``."""
        start = self._at
        kind, token = self._next()
        if kind == "name" and self._takes("="):
            self._at = start
            value: object = self._arguments("")[1]
        else:
            value = self._value(kind, token)
        if self._text[self._at :].strip():
            raise self._fault()
        return value

    def _fault(self) -> UnreadableValue:
        return UnreadableValue(f"cannot be read behind character {self._at}: write it by `json.dumps`")

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            raise self._fault()
        self._at = found.end()
        return found.lastgroup, found[found.lastgroup]

    def _takes(self, *marks: str) -> str:
        """Step over one of these marks, if it is next."""
        found = _TOKEN.match(self._text, self._at)
        if found is None or found["mark"] not in marks:
            return ""
        self._at = found.end()
        return found["mark"]

    def _value(self, kind: str, token: str) -> object:
        if kind == "text":
            return _unquoted(token)
        if kind == "number":
            return _number(token)
        if kind == "dots":
            raise _left_out()
        if kind == "object":
            return _CONSTANTS.get(token, token)
        if kind == "name":
            return self._named(token)
        if token not in _ENDS:
            raise self._fault()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableValue("nests too deeply")
        value = self._mapping_or_set() if token == "{" else self._items(_ENDS[token])
        self._depth -= 1
        return value

    def _items(self, end: str) -> list[object]:
        """Read items with commas between them, or without, as numpy writes them."""
        items: list[object] = []
        while not self._takes(end):
            items.append(self._value(*self._next()))
            self._takes(",")
        return items

    def _mapping_or_set(self) -> object:
        items: list[object] = []
        mapping: dict[str, object] = {}
        while not self._takes("}"):
            key = self._value(*self._next())
            if self._takes(":"):
                mapping[str(key)] = self._value(*self._next())
            else:
                items.append(key)
            self._takes(",")
        if mapping and items:
            raise self._fault()
        return items or mapping

    def _named(self, name: str) -> object:
        start = self._at - len(name)
        if not self._takes("("):
            if name in _CONSTANTS:
                return _CONSTANTS[name]
            if name.lstrip("+-") == "inf":
                return float(name)
            if "." in name:  # a member of an enumeration
                return name
            raise self._fault()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableValue("nests too deeply")
        unnamed, named = self._arguments(")")
        self._depth -= 1
        if len(unnamed) == 1:  # such as `np.str_('…')` and `array([…], dtype=object)`
            return unnamed[0]
        return named if named and not unnamed else self._text[start : self._at]

    def _arguments(self, end: str) -> tuple[list[object], dict[str, object]]:
        """Read arguments up to ``end``, or up to the end of the text."""
        unnamed: list[object] = []
        named: dict[str, object] = {}
        while not (self._takes(end) if end else _REST.match(self._text, self._at)):
            kind, token = self._next()
            if kind == "name" and (mark := self._takes("=", ":")):
                named[token] = self._argument(mark)
            else:
                unnamed.append(self._value(kind, token))
            self._takes(",")
        return unnamed, named

    def _argument(self, mark: str) -> object:
        found = _UNQUOTED.match(self._text, self._at)
        if found and not _is_known(found[1]):
            self._at = found.end()
            return found[1]
        value = self._value(*self._next())
        if mark == ":" and isinstance(value, str) and len(value) > _CUT_CHARS and value.endswith("..."):
            raise _left_out()
        return value


def _is_known(word: str) -> bool:
    found = _TOKEN.fullmatch(word)
    return word in _CONSTANTS or (found is not None and found.lastgroup == "number")


def _left_out() -> UnreadableValue:
    return UnreadableValue("left out items where it has `...`: write whole values, by `json.dumps` of a list")


def _number(token: str) -> object:
    digits = token.replace("_", "")
    if digits.lstrip("+-").isdigit():
        return int(digits) if len(digits) < _MOST_DIGITS else digits
    return float(digits)


def _unquoted(token: str) -> str:
    body = token[token.index(token[-1]) + 1 : -1]
    if "\\" not in body:
        return body
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python does not know
        try:
            value = ast.literal_eval(token.replace("\r", "\\r").replace("\n", "\\n"))
        except (ValueError, SyntaxError, MemoryError):
            return body
    return value if isinstance(value, str) else body
