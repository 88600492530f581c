"""The project's own source, read as syntax trees."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the library or of the collector."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that the module is in."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def public_names(self) -> tuple[str, ...]:
        """The names in ``__all__``."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return tuple(ast.literal_eval(node.value))
        return ()


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of both packages."""
    gc.disable()  # it would look at each of a million nodes, again and again
    try:
        return tuple(_found())
    finally:
        gc.enable()


def imports_in(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the module and name of each import, at every level: ``import a.b`` has the name ``""``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""


def _found() -> Iterator[Module]:
    for root in (ROOT, ROOT / "collector"):
        package = "ragtrace" if root == ROOT else "ragtrace_collector"
        for path in sorted((root / package).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            yield Module(name, path, ast.parse(path.read_text("utf-8")))
