"""Run an action when the application imports a library, without importing it ourselves."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(module: str, action: Callable[[], object]) -> None:
    """Call the action now if the module is imported, else as the last step of its import.

    The action must not raise, because that would fail the application's import.
    """
    with _lock:
        if module not in sys.modules:
            _pending.setdefault(module, []).append(action)
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
            return
    action()


_lock = threading.Lock()  # one thread may load a module while another registers for it
_pending: dict[str, list[Callable[[], object]]] = {}


class _Finder(MetaPathFinder):
    """Finds no module itself: it asks the other finders and wraps their loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _pending:
            return None
        spec = _found_by_others(fullname, path, target)
        if spec is not None and spec.loader is not None:
            _watch(spec)
        return spec


_finder = _Finder()


def _found_by_others(
    fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not _finder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
    return None


def _watch(spec: ModuleSpec) -> None:
    loader = spec.loader
    assert loader is not None  # checked by the caller
    load = loader.exec_module

    def load_and_act(module: ModuleType) -> None:
        del loader.exec_module  # restore the module's own loader after this one call
        load(module)
        with _lock:
            actions = _pending.pop(spec.name, [])
        for action in actions:
            action()

    loader.exec_module = load_and_act  # type: ignore[method-assign]
