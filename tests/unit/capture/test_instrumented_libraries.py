"""Which libraries are instrumented, when, and by whom: with a library and instrumentors made for it."""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import NoOpTracerProvider

from ragtrace.capture.libraries.instrumentors import (
    InstrumentedLibraries,
    InstrumentorKind,
    Library,
    chosen,
)

SEARCH = Library(
    name="search",
    module="searchlib",
    kind=InstrumentorKind.OPENINFERENCE,
    instrumentor="searchlib_tracing:SearchInstrumentor",
    package="searchlib-tracing",
    others=("searchlib_rival:RivalInstrumentor", "searchlib_drop_in"),
    marked=("searchlib:Client.search", "searchlib:handlers"),
    variable="SEARCHLIB_TRACES",
)

FILES = {
    "searchlib.py": """
handlers = []
class Client:
    def search(self): return "found"
""",
    "searchlib_tracing.py": """
class SearchInstrumentor:
    _instance = None
    is_instrumented_by_opentelemetry = False
    given = []
    def __new__(cls):
        cls._instance = cls._instance or super().__new__(cls)
        return cls._instance
    def instrument(self, **given):
        import searchlib
        self.given.append(given)
        self.is_instrumented_by_opentelemetry = True
    def uninstrument(self):
        self.is_instrumented_by_opentelemetry = False
""",
    "searchlib_rival.py": """
from searchlib_tracing import SearchInstrumentor
class RivalInstrumentor(SearchInstrumentor):
    _instance = None
""",
    "searchlib_drop_in.py": "import searchlib",
    "openinference/__init__.py": "",
    "openinference/instrumentation.py": """
from dataclasses import dataclass
@dataclass
class TraceConfig:
    hide_inputs: bool | None = None
    hide_outputs: bool | None = None
    base64_image_max_length: int | None = None
""",
}


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the library and its instrumentors, and forget them afterwards."""
    for name, code in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("searchlib", "openinference")):
            del sys.modules[name]


@pytest.fixture
def instrumented() -> Iterator[Callable[..., InstrumentedLibraries]]:
    """Instrument the library, with content or without."""
    made: list[InstrumentedLibraries] = []

    def instrument(*, content: bool = True, library: Library = SEARCH) -> InstrumentedLibraries:
        made.append(InstrumentedLibraries(NoOpTracerProvider(), content=content))
        made[-1].turn_on([library])
        return made[-1]

    yield instrument
    for each in made:
        each.turn_off()


def instrumentor() -> Any:
    return importlib.import_module("searchlib_tracing").SearchInstrumentor()


def test_a_library_is_instrumented_when_the_application_imports_it(instrumented: Any) -> None:
    libraries = instrumented()
    assert not {"searchlib", "searchlib_tracing", "openinference"} & set(sys.modules)
    importlib.import_module("searchlib")
    assert libraries.names == ("search",)
    assert isinstance(instrumentor().given[0]["tracer_provider"], NoOpTracerProvider)
    libraries.turn_off()
    assert (instrumentor().is_instrumented_by_opentelemetry, libraries.names) == (False, ())


def test_an_import_that_fails_is_instrumented_when_it_succeeds(instrumented: Any, site: Path) -> None:
    libraries = instrumented()
    (site / "searchlib.py").write_text("raise ImportError('half an installation')")
    with pytest.raises(ImportError, match="half an installation"):
        importlib.import_module("searchlib")
    (site / "searchlib.py").write_text(FILES["searchlib.py"] + "\n\n# longer, and so compiled anew")
    importlib.import_module("searchlib")
    assert libraries.names == ("search",)


def test_threads_that_import_at_once_instrument_once(instrumented: Any) -> None:
    instrumented()
    start = threading.Barrier(4)

    def load() -> None:
        start.wait()
        importlib.import_module("searchlib")

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(instrumentor().given) == 1


@pytest.mark.parametrize("module", ["searchlib_tracing", "searchlib_rival"])
def test_a_library_that_an_instrumentor_imports_is_left_to_it(instrumented: Any, module: str) -> None:
    libraries = instrumented()
    own = importlib.import_module(module)
    (own.SearchInstrumentor if module == "searchlib_tracing" else own.RivalInstrumentor)().instrument()
    assert libraries.names == ()


def wrapped(function: Any, module: str) -> Any:
    space: dict[str, Any] = {"__name__": module, "functools": functools, "function": function}
    exec("@functools.wraps(function)\ndef wrapper(*given): return function(*given)", space)
    return space["wrapper"]


@pytest.mark.parametrize(
    ("wrappers", "names"),
    [
        (["mlflow.tracing"], ()),
        (["tenacity.retry", "langfuse.openai", "tenacity.retry"], ()),
        (["tenacity.retry", "sentry_sdk.integrations"], ("search",)),
    ],
    ids=["a tracer", "a tracer inside a retry", "no tracer"],
)
def test_only_tracers_that_wrapped_a_library_keep_it(
    instrumented: Any, wrappers: list[str], names: tuple[str, ...]
) -> None:
    module = importlib.import_module("searchlib")
    for wrapper in wrappers:
        module.Client.search = wrapped(module.Client.search, wrapper)
    assert instrumented().names == names


def test_a_library_told_to_send_spans_itself_is_left_to_it(
    instrumented: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCHLIB_TRACES", "true")
    importlib.import_module("searchlib")
    assert instrumented().names == ()


def test_without_content_the_instrumentor_hides_it(instrumented: Any) -> None:
    instrumented(content=False)
    importlib.import_module("searchlib")
    config = instrumentor().given[0]["config"]
    assert (config.hide_inputs, config.hide_outputs, config.base64_image_max_length) == (True, True, None)


def test_a_missing_instrumentor_is_named_and_costs_nothing(
    instrumented: Any, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "searchlib_tracing.py").unlink()
    libraries = instrumented(library=replace(SEARCH, name="search without tracing"))
    assert importlib.import_module("searchlib").Client().search() == "found"
    assert libraries.names == ()
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install searchlib-tracing" in line


@pytest.mark.parametrize(
    "fault", ["raise RuntimeError('broken')", "import gone", "SearchInstrumentor = None"], ids=str
)
def test_a_broken_instrumentor_does_not_reach_the_import_and_is_told(
    instrumented: Any, site: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "searchlib_tracing.py").write_text(fault)
    libraries = instrumented(library=replace(SEARCH, name=f"search by {fault}"))
    assert importlib.import_module("searchlib").Client().search() == "found"
    assert libraries.names == ()
    (line,) = capsys.readouterr().err.splitlines()
    assert "its calls are not traced: searchlib-tracing does not fit" in line


def test_names_that_no_library_has_are_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    assert [library.name for library in chosen({"openai", "opnai"}, {"chroma"})] == ["openai"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "'chroma', 'opnai'" in record.getMessage()
    assert "chromadb" in record.getMessage()
