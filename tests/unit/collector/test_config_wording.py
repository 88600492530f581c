"""Whatever is written wrong into a configuration is told in our words, by key: pydantic's reach nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import date
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ragtrace.validation import in_words
from ragtrace_collector.config import CollectorConfig, default_config_text
from ragtrace_collector.config.load import problems

FOREIGN = re.compile(
    r"(?i)input|should|valid |valid$|pydantic|dictionary|tuple|type=|byte string|Extra|field|instance"
)
"""Words of pydantic's messages that ours do without."""
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 2, 0.5, 1e300, float("inf"), float("nan"), 10**30, "", "x" * 5_000, "no such thing",
    "1ZB", b"\xff", date(2026, 1, 1), [], [[]], [None], ["a", 1], [{}], {}, {"a": None}, {1: 2}, {None: 1},
    {"name": 1, "rate": 3}, {True: {"a": date(2026, 1, 1)}}, {"use": "a", "headers": {"a": 1, "b c": "d"}},
    [{"name": "a", "attributes": {"b": [[1], None], "c": {"above": "x"}}}],
    [{"name": "n" * 65, "service": "a"}],
    [{"endpoint": "a:1", "headers": {1: [2]}, "tls": {"cert": "a"}}], [{"name": "a", "options": {"b": {1}}}],
    {"answers": 0}, {"below": 0, "same": []}, {"same": ["nobody"], "below": 5, "most": 10**6},
    [{"name": "n", "sha256": 1, "may": ["fly"]}], {"cert": 1}, {"path": [], "max_bytes": "many"},
)  # fmt: skip


def keys(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, child in value.items():
            yield from keys(child, (*path, name))


DOCUMENT = yaml.safe_load(default_config_text())
KEYS = [*keys({**DOCUMENT, "export": None, "evaluate": {**DOCUMENT["evaluate"], "metrics": None}})]


def with_value(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    document = deepcopy(DOCUMENT)
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return document


def faults(path: tuple[str, ...]) -> Iterator[ErrorDetails]:
    for value in WRONG:
        try:
            CollectorConfig.model_validate(with_value(path, value))
        except ValidationError as exc:
            yield from exc.errors()


@pytest.mark.parametrize("section", DOCUMENT)
def test_no_value_of_any_key_gets_an_answer_in_foreign_words(section: str) -> None:
    for path in KEYS:
        found = [*faults(path)] if path[0] == section else []
        assert found or path[0] != section, f"nothing is wrong with {path}, whatever is written"
        for error in found:
            [said] = problems([error])
            _where, _, words = said.partition(": ")
            assert error["type"] in ("missing", "extra_forbidden") or words, said
            assert not FOREIGN.search(re.sub(r"`[^`]*`|'[^']*'", "", words)), (error["type"], said)
            assert in_words(error) != "it cannot be used as it is", error["type"]
