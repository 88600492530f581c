"""Load plug-ins by name (entry points of installed packages) or by code address.

Built-ins are listed in the same form, so that they also work from an uninstalled checkout; a plug-in cannot
override their names. An address is ``./my_metric.py:Politeness`` or ``package.module:Name``; the text after a
second colon is the plug-in's argument.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ragtrace.errors import ConfigError, RagtraceError

_ADDRESS: Final = re.compile(
    r"(?P<where>[^:]+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)(?::(?P<argument>.*))?", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a plug-in that is not installed."""

    where: str
    """A ``.py`` file, or an importable module."""
    name: str
    argument: str = ""
    """The plug-in's argument: the model of ``./my_judge.py:open_it:MODEL``."""

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """Parse ``PATH.py:NAME`` or ``module:NAME``; ``None`` if the text is neither."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            return None
        return cls(where=found["where"], name=found["name"], argument=found["argument"] or "")

    @property
    def is_file(self) -> bool:
        """Whether it is a file, not an importable module."""
        return self.where.endswith(".py")

    @property
    def leads_somewhere(self) -> bool:
        """Whether it names a file, or a package on Python's path."""
        return self.is_file or find_spec(self.where.partition(".")[0]) is not None

    def __str__(self) -> str:
        return f"{self.where}:{self.name}"


def named_beside(text: str, folder: Path) -> str:
    """Resolve the file of an address against a folder; any other text is returned as it is."""
    address = Address.parse(text)
    if address is None or not address.is_file:
        return text
    return f"{folder / address.where}{text[len(address.where) :]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginKind:
    """A kind of plug-in, named by ``NAME:ARGUMENT`` or by the address of a factory."""

    what: str
    """The word for it in messages: ``judge``."""
    group: str
    """The entry-point group."""
    built_in: Mapping[str, str]
    choices: str
    """The choices to show in messages."""
    members: tuple[str, ...]
    """Members that each object must have."""
    port: str
    """The protocol that each object implements."""

    def factory(self, spec: str) -> tuple[Callable[[Any], Any], str]:
        """Return the factory and its argument, the text after the colon.

        Raises:
            ConfigError: no plug-in has that name.
        """
        name, _, argument = spec.partition(":")
        points = find_plugins(self.group, self.built_in)
        if name in points:
            return load_plugin(points[name]), argument
        address = Address.parse(spec)
        if address and address.leads_somewhere:
            return load_address(address), address.argument
        raise ConfigError(
            f"there is no {self.what} {name!r}: choose {self.choices}"
            f" (installed: {', '.join(sorted(points))}), or name code: ./FILE.py:NAME"
        )

    def open(self, make: Callable[[Any], Any], settings: object, spec: str) -> Any:
        """Call a factory and check that the object has the port's members.

        Raises:
            ConfigError: the factory raises another error, or returns something else.
        """
        try:
            made = make(settings)  # third-party code may raise anything
        except RagtraceError:
            raise
        except Exception as exc:
            raise ConfigError(f"{self.what} {spec!r} cannot be opened: {exc!r}") from exc
        lack = [name for name in self.members if not hasattr(made, name)]
        if lack:
            raise ConfigError(
                f"{spec!r} gives no {self.what}: a {type(made).__name__} without `{lack[0]}`"
                f" (see {self.port})"
            )
        return made


def load_address(address: Address) -> Any:
    """Import the object at an address. A file runs once per process.

    Raises:
        ConfigError: there is no such file, module or name, or its code raises; the message says which.
    """
    try:
        module = _module_of_file(address) if address.is_file else import_module(address.where)
    except Exception as exc:  # third-party code may raise anything
        frames = traceback.extract_tb(exc.__traceback__)
        own = [each for each in frames if "importlib" not in each.filename and each.filename != __file__]
        place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        raise ConfigError(f"{str(address)!r} cannot be loaded: {exc!r}{place}") from exc
    if not hasattr(module, address.name):
        raise ConfigError(f"{address.where!r} has no {address.name!r}")
    return getattr(module, address.name)


def find_plugins(group: str, built_in: Mapping[str, str]) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name without importing them."""
    ours = {name: EntryPoint(name, target, group) for name, target in built_in.items()}
    return {**_installed(group), **ours}


def load_plugin(point: EntryPoint) -> Any:
    """Import the object of an entry point.

    Raises:
        ConfigError: it cannot be imported; the message names the plug-in and its package.
    """
    try:
        return point.load()  # a third-party import may raise anything
    except Exception as exc:
        package = point.dist.name if point.dist else "ragtrace-otel"
        raise ConfigError(
            f"plug-in {point.name!r} of `{point.group}` (package {package!r}) cannot be loaded: {exc!r}"
        ) from exc


@cache
def _installed(group: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}  # reads files: once per process


def _module_of_file(address: Address) -> ModuleType:
    path = Path(address.where).resolve()
    name = f"ragtrace_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        loader = SourceFileLoader(name, str(path))
        spec = spec_from_loader(name, loader)
        assert spec is not None
        sys.modules[name] = module = module_from_spec(spec)
        try:
            loader.exec_module(module)  # dataclasses and pydantic look up their module in sys.modules
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
