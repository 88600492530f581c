"""The distribution: its public names, its weight, its contents and its lock."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ragtrace
from ragtrace.capture.libraries.instrumentors import LIBRARIES
from tests.patience import PATIENCE_S
from tests.wheel import build_wheel

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "locks/development.txt").read_text()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ragtrace' has no attribute 'instrumnt'"):
        ragtrace.instrumnt  # noqa: B018


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after the statement."""
    code = f"{statement}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return set(run.stdout.split())


def test_importing_ragtrace_loads_no_client_library() -> None:
    loaded = loaded_by("import ragtrace")
    assert "ragtrace" in loaded
    assert not loaded & {
        "azure",
        "openai",
        "grpc",
        "httpx",
        "httpx2",
        "requests",
        "pydantic",
        "opentelemetry",
    }


@pytest.mark.slow
def test_a_judge_without_an_endpoint_loads_no_client_library() -> None:
    chunks = "[ragtrace.Chunk(id='c', text='It rains.')]"
    record = f"ragtrace.RagRecord(id='1', question='?', chunks={chunks}, answer='It rains.')"
    loaded = loaded_by(f"import ragtrace; ragtrace.evaluate_sync({record}, judge='lexical')")
    assert "ragtrace" in loaded
    assert not loaded & {"anthropic", "azure", "openai", "httpx", "httpx2", "aiohttp"}


CLIENTS = {"aiohttp", "grpc", "httpx", "httpx2", "openai"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "brought"),
    [
        ("endpoint='http://127.0.0.1:4317', protocol='grpc'", {"grpc"}),
        ("endpoint='http://127.0.0.1:4318', protocol='http/protobuf'", set()),
        ("", set()),  # OTEL_TRACES_EXPORTER: no span leaves by OTLP, so the default, gRPC, is not needed
    ],
    ids=["grpc", "http", "none"],
)
def test_grpc_is_loaded_when_its_exporter_is_built(settings: str, brought: set[str]) -> None:
    loaded = loaded_by(
        "import os, sys; os.environ['OTEL_TRACES_EXPORTER'] = 'none'\n"
        "import ragtrace; from ragtrace import instrument, rag, retrieval, generation\n"
        "import ragtrace.capture.pipeline, ragtrace.http\n"
        "assert 'grpc' not in sys.modules\n"
        f"instrument({settings}{', ' if settings else ''}only=[])"
    )
    assert loaded & CLIENTS == brought


def test_the_command_line_loads_the_collector_only_to_start_it() -> None:
    loaded = loaded_by("import ragtrace.cli")
    assert not loaded & {"ragtrace_collector", "openai", "grpc", "uvicorn"}


def direct_requirements() -> Iterator[Requirement]:
    project = PYPROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for line in [line for group in groups for line in group] + PYPROJECT["dependency-groups"]["dev"]:
        requirement = Requirement(line)
        if requirement.name != project["name"]:
            yield requirement


INSTRUMENTORS = {library.package for library in LIBRARIES if library.package}


def locked(lock: str = LOCK) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+)", lock, flags=re.MULTILINE))


def test_every_library_that_is_instrumented_has_an_extra_that_brings_its_instrumentor() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    named = {"chromadb": "chroma"}
    for library in LIBRARIES:
        brought = {Requirement(line).name for line in extras[named.get(library.name, library.name)]}
        assert brought - {"ragtrace-otel"} == ({library.package} if library.package else set())


def test_lock_satisfies_every_dependency() -> None:
    # instrumentors come with the libraries they are for, in the second environment
    frameworks = locked((ROOT / "locks/frameworks.txt").read_text())
    for requirement in direct_requirements():
        versions = frameworks if requirement.name in INSTRUMENTORS else locked()
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement}: {version} is locked"
        )


def test_lock_pins_hashes_and_names_no_host() -> None:
    entries = re.split(r"\n(?=[a-z])", LOCK)[1:]
    assert {entry.split("==")[0] for entry in entries} == locked().keys() != set()
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in LOCK
    assert "--index-url" not in LOCK


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_wheel_holds_prompts_pages_types_and_the_demos_data(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    prompts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ragtrace/metrics/prompts").iterdir()}
    data = {f"ragtrace/cli/data/{path.name}" for path in (ROOT / "examples/data").iterdir()}
    pages = {f"ragtrace/{name}.html" for name in ("calibration/page", "reports/frame", "reports/page")}
    typed = {"ragtrace/py.typed", "ragtrace_collector/py.typed", "ragtrace_collector/config.yaml"}
    assert prompts | data | pages | typed | {"ragtrace/reports/page.css"} <= shipped
