"""The work store is a port: who judges, serves or shows answers knows nothing of SQL."""

from __future__ import annotations

import ast
import inspect

from ragtrace.budget import SpendLedger
from ragtrace_collector.store.port import SamplingStore, WorkStore
from tests.architecture.source import ROOT, Module, imports_in, modules

STORE = "ragtrace_collector.store"
DOORS = {f"{STORE}.{name}" for name in ("open", "open_reading", "port", "trace_key")}
"""What the rest of the collector may import."""


def is_in(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def store_modules_of(module: Module) -> set[str]:
    """Return the modules of the store that a module imports, private parts of the port as the port."""
    known = {each.name for each in modules()}
    named = {
        f"{source}.{name}" if f"{source}.{name}" in known else source
        for source, name in imports_in(module.tree)
    }
    return {f"{STORE}.port" if is_in(name, f"{STORE}.port") else name for name in named if is_in(name, STORE)}


def test_the_collector_reaches_its_store_through_the_port() -> None:
    beyond = {
        f"{module.name} imports {name}"
        for module in modules()
        if is_in(module.name, "ragtrace_collector")
        and not is_in(module.name, STORE)
        and not is_in(module.name, "ragtrace_collector.cli")
        for name in store_modules_of(module) - DOORS
    }
    assert beyond == set()


def test_only_the_service_opens_a_store() -> None:
    choosers = {
        module.name.rpartition(".")[0]
        for module in modules()
        if {f"{STORE}.open", f"{STORE}.open_reading"} & store_modules_of(module)
        and not is_in(module.name, STORE)
        and not is_in(module.name, "ragtrace_collector.cli")
        and not is_in(module.name, "ragtrace.cli")
    }
    assert choosers == {"ragtrace_collector.service"}


def test_the_port_knows_no_adapter() -> None:
    imported = {
        f"{module.name} imports {name}"
        for module in modules()
        if is_in(module.name, f"{STORE}.port")
        for name in store_modules_of(module) - {f"{STORE}.port", f"{STORE}.trace_key"}
    }
    assert imported == set()


def test_no_statement_leaves_the_store() -> None:
    outside = {
        module.name
        for module in modules()
        if is_in(module.name, "ragtrace_collector")
        and not is_in(module.name, STORE)
        and any(source == "sqlite3" for source, _ in imports_in(module.tree))
    }
    assert outside == set()


KIT = ("test_work_store", "test_held_traces", "test_store_*")
"""The modules of ``tests/conformance`` about the store."""


def test_the_conformance_kit_calls_every_method_of_the_port() -> None:
    called = {
        node.func.attr
        for pattern in KIT
        for path in (ROOT / "tests/conformance").glob(f"{pattern}.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    methods = {
        name
        for port in (WorkStore, SpendLedger, SamplingStore)
        for name, member in inspect.getmembers(port, inspect.isfunction)
        if not name.startswith("_")
    }
    assert len(methods) > 30
    assert methods - called == set()
