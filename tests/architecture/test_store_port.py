"""SQL stays in the store: who judges, serves or shows answers knows nothing of it."""

from __future__ import annotations

import ast
import inspect

from ragtrace_collector.store.sampling import SamplingState
from ragtrace_collector.store.store import Store
from tests.architecture.source import ROOT, imports_in, modules

STORE = "ragtrace_collector.store"


def test_no_statement_leaves_the_store() -> None:
    outside = {
        module.name
        for module in modules()
        if f"{module.name}.".startswith("ragtrace_collector.")
        and not f"{module.name}.".startswith(f"{STORE}.")
        and any(source in ("sqlite3", "psycopg") for source, _ in imports_in(module.tree))
    }
    assert outside == set()


KIT = ("test_work_store", "test_held_traces", "test_several_writers", "test_store_*")
"""The modules of ``tests/conformance`` about the store."""


def test_the_conformance_tests_call_every_method_of_the_store() -> None:
    called = {
        node.func.attr
        for pattern in KIT
        for path in (ROOT / "tests/conformance").glob(f"{pattern}.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    methods = {
        name
        for of_store in (Store, SamplingState)
        for name, member in inspect.getmembers(of_store, inspect.isfunction)
        if not name.startswith("_")
    }
    assert len(methods) > 30
    assert methods - called == set()
