"""Fixtures of all tests: a clean environment, and the real back ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests.backends.binary import required, required_binary
from tests.backends.helm_program import Helm
from tests.backends.jaeger_server import Jaeger, running_jaeger
from tests.backends.kafka_server import Kafka, required_java, running_kafka
from tests.backends.otelcol import OtelCol
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.phoenix_server import Phoenix, running_phoenix
from tests.backends.postgres_server import Postgres, running_postgres
from tests.backends.process import TEST_VARIABLES
from tests.backends.tempo_server import Tempo, running_tempo
from tests.checkout import CleanCheckout
from tests.sharing import BySharing

# No deadline: what an example takes on a shared machine says nothing. `make nightly` chooses the second.
settings.register_profile("ragtrace", deadline=None, max_examples=15, derandomize="CI" in os.environ)
settings.register_profile("nightly", deadline=None, max_examples=300)
settings.load_profile("ragtrace")

# A shell that runs the tests in the background ignores SIGINT, and children inherit that: tests of Ctrl-C
# could not interrupt the programs they start. With a handler here, children start with the default again.
signal.signal(signal.SIGINT, signal.default_int_handler)

_BACKEND_FIXTURES = {
    "jaeger",
    "tempo",
    "kafka",
    "kafka_jars",
    "otelcol",
    "gguf",
    "helm",
    "frameworks",
    "phoenix",
    "postgres",
    "browser",
}
_AT_NIGHT = {"frameworks", "phoenix"}
"""What takes minutes to install or to start."""
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
_CLEANED = ("OTEL_", "RAGTRACE_", "OPENAI_")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the checkout where the run is reported: once."""
    if not _IS_WORKER:
        config.pluginmanager.register(CleanCheckout())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySharing:
    """Keep together what shares something, and keep to the order that the workers collected in."""
    config.option.loadscopereorder = False
    return BySharing(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs a real back end, and put fast tests first, or long ones if tests run in parallel."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if _BACKEND_FIXTURES & fixtures:
            item.add_marker(pytest.mark.backend)
            item.add_marker(pytest.mark.slow)
        if _AT_NIGHT & fixtures:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.night)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=_in_parallel if _IS_WORKER else _one_by_one)


def _in_parallel(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is None


def _one_by_one(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path) -> Iterator[None]:
    """Hide the settings of whoever runs the tests: no test reads a key or an endpoint it did not set, nor
    what another test left behind; and none writes into the checkout by a relative path."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_CLEANED) and name not in TEST_VARIABLES:
                patch.delenv(name)
        patch.delenv("STATE_DIRECTORY", raising=False)
        patch.chdir(tmp_path)
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that runs."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """Run one real Jaeger for all tests: each uses its own service name or trace ids."""
    with running_jaeger(required_binary("jaeger"), tmp_path_factory.mktemp("jaeger")) as server:
        yield server


@pytest.fixture(scope="session")
def tempo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    """Run one real Tempo for all tests: each uses its own service name or trace ids."""
    with running_tempo(required_binary("tempo"), tmp_path_factory.mktemp("tempo")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """Find the jars of a real Kafka, for tests that run a broker of their own."""
    required_java()
    return required_binary("kafka")


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Run one real Kafka for all tests: each uses its own topics and groups."""
    with running_kafka(kafka_jars, tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    """Run one real Phoenix for all tests: each uses its own project, and span ids of its own."""
    with running_phoenix([required_binary("phoenix")], tmp_path_factory.mktemp("phoenix")) as server:
        yield server


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Find a real Helm, which renders charts."""
    return Helm(binary=required_binary("helm"))


@pytest.fixture(scope="session")
def otelcol(tmp_path_factory: pytest.TempPathFactory) -> OtelCol:
    """Find a real OpenTelemetry Collector; the test gives it a configuration to validate or run."""
    return OtelCol(binary=required_binary("jaeger"), folder=tmp_path_factory.mktemp("otelcol"))


@pytest.fixture(scope="session")
def gguf() -> Path:
    """Find a small language model: it speaks a model's protocol, and understands next to nothing."""
    return required_binary("smollm2")


@pytest.fixture(scope="session")
def frameworks() -> Path:
    """Find the interpreter that has the frameworks and others' instrumentations. It has no pytest."""
    python = Path(__file__).parents[1] / ".venv-frameworks" / "bin" / "python"
    return required(python, reason="it takes minutes, once: `make .venv-frameworks`")


@pytest.fixture
def otlp_receiver() -> Iterator[Callable[[], OtlpReceiver]]:
    """Start OTLP/gRPC receivers on free ports that keep what they get."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(running_receiver())
