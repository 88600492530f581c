"""Lets old module paths and names of the library work for one release, with a ``DeprecationWarning``.

`ragtrace._moved_names` has them: ``MODULES`` maps an old module to the new one, and ``NAMES`` maps, for each
new module, its old names to the new ones, with the path of a name that left the module. It is loaded when
an import asks for an old name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def install() -> None:
    """Let imports find the old modules. Python asks this finder last, so other imports pay nothing for it."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())


def old_names(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module, which finds what had another name before."""

    def find(name: str) -> Any:
        from ragtrace._moved_names import NAMES

        new = NAMES.get(module, {}).get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, current = new.rpartition(".")
        _warn(f"{module}.{name}", f"{home or module}.{current}")
        return getattr(import_module(home or module), current)

    return find


class _OldModules:
    """Finds the modules that have moved."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an old module, else ``None``."""
        if not fullname.startswith("ragtrace."):
            return None
        from ragtrace._moved_names import MODULES

        if fullname not in MODULES:
            return None
        from importlib.machinery import ModuleSpec

        # a package, so that its old submodules are found too
        loader: Any = _Alias()
        return ModuleSpec(fullname, loader, is_package=True)


class _Alias:
    """Loads a module whose attributes are those of the one that took its place."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let Python make the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Give the module its attributes, and warn."""
        from ragtrace._moved_names import MODULES, NAMES

        new = MODULES[module.__name__]
        renamed = NAMES.get(new, {})

        def find(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            home, _, current = renamed.get(name, name).rpartition(".")
            return getattr(import_module(home or new), current)

        module.__getattr__ = find  # type: ignore[method-assign]
        _warn(module.__name__, new)


def _warn(old: str, new: str) -> None:
    from warnings import warn

    warn(f"{old} is now {new}; the old name goes with the next release", DeprecationWarning, stacklevel=3)
