"""Whatever is written wrong into a configuration is told in our words, by key: pydantic's reach nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import date
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ragtrace.errors import ConfigError
from ragtrace.validation import in_words
from ragtrace_collector.config import CollectorConfig, default_config_text, parse_config
from ragtrace_collector.config._problems import problems

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


@pytest.mark.parametrize("path", KEYS, ids=".".join)
def test_no_value_of_any_key_gets_an_answer_in_foreign_words(path: tuple[str, ...]) -> None:
    found = [*faults(path)]
    assert found, "nothing is wrong here, whatever is written"
    for error in found:
        [said] = problems([error])
        _where, _, words = said.partition(": ")
        assert error["type"] in ("missing", "extra_forbidden") or words, said
        assert not FOREIGN.search(re.sub(r"`[^`]*`|'[^']*'", "", words)), (error["type"], said)
        assert in_words(error) != "it cannot be used as it is", error["type"]


def test_every_kind_of_fault_that_the_sections_know_comes_up_here() -> None:
    """A kind of value that is new to the configuration wants a line in the table of words."""
    met = {error["type"] for path in KEYS for error in faults(path)}
    assert met >= EXPECTED


EXPECTED = {
    "bool_parsing",
    "bool_type",
    "byte_size",
    "byte_size_unit",
    "dict_type",
    "extra_forbidden",
    "finite_number",
    "float_parsing",
    "float_type",
    "greater_than",
    "greater_than_equal",
    "int_from_float",
    "int_parsing",
    "int_type",
    "invalid-json-value",
    "less_than_equal",
    "literal_error",
    "missing",
    "model_type",
    "path_type",
    "string_too_long",
    "string_too_short",
    "string_type",
    "too_short",
    "tuple_type",
    "value_error",
}


def test_a_kind_that_nobody_foresaw_says_little_and_nothing_foreign() -> None:
    class Odd(BaseModel):
        when: date

    with pytest.raises(ValidationError) as caught:
        Odd.model_validate({"when": "x"})
    assert in_words(caught.value.errors()[0]) == "it cannot be used as it is"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sample: {ratio: 1.5}", "my.yaml: `sample.ratio`: write 1 or less"),
        ("sample: {ratio: lots}", "my.yaml: `sample.ratio`: write a number"),
        ("judge: {verify: text}", "my.yaml: `judge.verify`: choose `auto`, `json` or `logprobs`"),
        ("judge: {max_concurrency: 0}", "my.yaml: `judge.max_concurrency`: write a number above 0"),
        ("judge: {max_concurrency: 1.5}", "my.yaml: `judge.max_concurrency`: write a whole number"),
        ("judge: [a]", "my.yaml: `judge`: write keys with values, not a single value"),
        ("receive: {insecure: maybe}", "my.yaml: `receive.insecure`: write true or false"),
        ("store: {max_bytes: many}", "my.yaml: `store.max_bytes`: write a size with its unit"),
        ("store: {path: [a]}", "my.yaml: `store.path`: write a path"),
    ],
)
def test_it_is_said_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{text}\nexport: [{{endpoint: 'http://h:4317'}}]\n", where="my.yaml", environ={})
    assert str(caught.value).startswith(said)
