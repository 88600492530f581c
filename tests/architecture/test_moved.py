"""Old module paths and names work for one release, and warn with the new ones."""

from __future__ import annotations

import importlib
import sys
import warnings

import pytest

from ragtrace._moved_names import MODULES, NAMES


@pytest.mark.parametrize("old", MODULES)
def test_an_old_module_is_the_new_one_and_says_so(old: str) -> None:
    new = MODULES[old]
    for name in [name for name in sys.modules if name == old or name.startswith(f"{old}.")]:
        del sys.modules[name]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        module = importlib.import_module(old)
    told = f"{old} is now {new}; the old name goes with the next release"
    assert [w.category for w in warned if str(w.message) == told] == [DeprecationWarning]
    current = importlib.import_module(new)
    for name in vars(current):
        if not name.startswith("__"):
            assert getattr(module, name) is getattr(current, name)
    for name, renamed in NAMES.get(new, {}).items():
        assert getattr(module, name) is getattr(current, renamed)


@pytest.mark.parametrize(
    ("module", "old"),
    [
        (module, old)
        for module in (
            "ragtrace.judge",
            "ragtrace.metrics",
            "ragtrace.metrics.steps",
            "ragtrace.capture.privacy.policy",
        )
        for old in NAMES[module]
    ],
)
def test_an_old_name_is_the_new_one_and_says_so(module: str, old: str) -> None:
    current = importlib.import_module(module)
    home, _, new = NAMES[module][old].rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is now {home or module}.{new}"):
        assert getattr(current, old) is getattr(importlib.import_module(home or module), new)


def test_every_new_name_is_there() -> None:
    for module, names in NAMES.items():
        for new in names.values():
            home, _, name = new.rpartition(".")
            assert hasattr(importlib.import_module(home or module), name)


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ragtrace.metrics.nothing")
    with pytest.raises(ImportError):
        from ragtrace.metrics import Nothing  # type: ignore[attr-defined]  # noqa: F401
