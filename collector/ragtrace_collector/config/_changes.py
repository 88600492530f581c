"""Changes of a configuration by the paths of its keys: ``judge.timeout``."""

from __future__ import annotations

from typing import Any, Final

from ragtrace.errors import ConfigError
from ragtrace_collector.config.sections import store_at

_SHORT: Final = {"second": "use", "metrics": "name"}
"""What the text says that a section may be written as."""


def change(document: dict[str, Any], key: str, value: object) -> None:
    """Set a key. An item of a list is named by its number, its ``name``, or ``*`` for each.

    Raises:
        ConfigError: the path leads into a value, or to an item that is not there.
    """
    *parents, last = key.split(".")
    if not all((*parents, last)):
        raise ConfigError(f"`{key}` is no key: write SECTION.NAME, such as judge.timeout")
    _set(document, parents, last, value, key)


def _set(node: Any, parents: list[str], last: str, value: object, key: str) -> None:
    if isinstance(node, dict) and not parents:
        node[last] = value
        return
    here = parents[0] if parents else last
    if isinstance(node, dict):
        inner = node.get(here)
        if inner is None:
            inner = [{"name": "faithfulness"}] if here == "metrics" else {}
        if here == "store":
            inner = store_at(inner)
        elif isinstance(inner, str) and here in _SHORT:
            inner = {_SHORT[here]: inner}
        if isinstance(inner, list):
            inner = [{_SHORT[here]: one} if isinstance(one, str) and here in _SHORT else one for one in inner]
        node[here] = inner
        _set(inner, parents[1:], last, value, key)
    elif isinstance(node, list):
        chosen = [number for number, item in enumerate(node) if here in ("*", str(number), _name(item))]
        if not chosen:
            there = ", ".join(f"`{_name(item) or number}`" for number, item in enumerate(node))
            raise ConfigError(f"`{key}`: there is no `{here}`, but {there or 'an empty list'}")
        for number in chosen:
            if parents:
                _set(node[number], parents[1:], last, value, key)
            else:
                node[number] = value
    else:
        raise ConfigError(f"`{key}`: `{here}` is below a value, which has no keys")


def _name(item: object) -> str:
    return str(item.get("name", "")) if isinstance(item, dict) else str(item)
