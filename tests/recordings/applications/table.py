"""The applications that are recorded: the examples, and some that do what traces are hard to read for."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from types import ModuleType

from tests.recordings.applications import (
    agents,
    by_hand,
    decorated,
    negatives,
    on_haystack,
    on_langchain,
    on_llamaindex,
    streams,
    two_services,
)
from tests.recordings.applications.application import Application


def _made_by(module: ModuleType) -> dict[str, Callable[[], Application]]:
    """Return the public functions of a module that take nothing, by the names that scenarios give them."""
    made = [each for name, each in vars(module).items() if isfunction(each) and name[0] != "_"]
    own = [each for each in made if each.__module__ == module.__name__ and not each.__code__.co_argcount]
    return {each.__name__.replace("_", "-"): each for each in own}


APPLICATIONS: dict[str, Callable[[], Application]] = dict(streams.STREAMS)
for _module in (
    agents,
    by_hand,
    decorated,
    negatives,
    on_haystack,
    on_langchain,
    on_llamaindex,
    two_services,
):
    APPLICATIONS |= _made_by(_module)
