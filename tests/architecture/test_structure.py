"""Structure that import contracts do not see."""

from __future__ import annotations

import ast

from tests.architecture.source import imports_in, modules


def test_nothing_reaches_into_the_http_server() -> None:
    """`uvicorn` itself is its public interface: what is below may change in any release."""
    inside = {
        f"{module.name}: {imported}"
        for module in modules()
        for imported, _ in imports_in(module.tree)
        if imported.startswith("uvicorn.")
    }
    assert inside == set()


def test_one_door_opens_sqlite_files() -> None:
    """Private mode, marks, migrations and errors are written once; the store's files are locked besides."""
    openers = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) in {"sqlite3.connect", "sqlite3.Connection"}
    }
    assert {name for name in openers if not name.startswith("ragtrace_collector.store.")} == {"ragtrace.sql"}
