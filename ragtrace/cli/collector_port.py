"""What commands of the library take from the collector: its configuration file, its budget and its store.

The library does not import the collector. The collector's package names its adapter in the entry point group
``ragtrace.collector``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ragtrace.cli.extras import needs_extra
from ragtrace.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from ragtrace.answers.opened import AnswerSource
    from ragtrace.answers.port import AnswerIndex
    from ragtrace.answers.summary import ScreenedAnswer
    from ragtrace.budget import Prices, Spender
    from ragtrace.conversations.settings import SessionSettings
    from ragtrace.http.tls import ClientTls
    from ragtrace.model import JudgeIdentity
    from ragtrace.pipeline.spec import EvaluatorSpec
    from ragtrace.ports import TraceReader
    from ragtrace.sampling import SamplingPlan
    from ragtrace.traces.attach import AttachOptions
    from ragtrace.traces.extract import ExtractRules


GROUP: Final = "ragtrace.collector"
_NAME: Final = "port"


class CollectorPort(Protocol):
    """What the collector offers to the library's commands; a wrong file is a ConfigError."""

    def extract_rules(self, path: Path) -> ExtractRules:
        """Read the section `extract`."""
        ...

    def sampling_plan(self, path: Path) -> SamplingPlan:
        """Read the section `sample`."""
        ...

    def shared_budget(self, path: Path) -> SharedBudget:
        """Read `budget.backfill`, and where the store is."""
        ...

    def targets(self, path: Path) -> ConfiguredTargets:
        """Read what ``ragtrace doctor`` checks."""
        ...

    def evaluator(self, path: Path) -> ConfiguredEvaluator:
        """Read what decides how an answer is judged and told: `judge`, `evaluate`, `extract`, `attach`."""
        ...

    def store(self, path: Path) -> ConfiguredStore:
        """Read where the store is, what decrypts it, and the section `extract`."""
        ...

    def open_store(self, path: Path) -> TraceReader:
        """Open a store without keys for reading, also while a collector uses it."""
        ...

    def answers(
        self, config: Path | None, store: Path | None
    ) -> AbstractAsyncContextManager[ConfiguredAnswers]:
        """Open the judged answers of a store for reading, also while a collector uses it.

        It is the named store, or that of the configuration, or the default one.
        """
        ...


class SharedBudget(Protocol):
    """The budget for back-fill of a collector on this machine."""

    def check(self, who: JudgeIdentity, prices: Prices) -> None:
        """Make sure that a judge can be counted.

        Raises:
            ConfigError: the budget limits money, and what the judge costs is not known.
        """
        ...

    def opened(self, stop: asyncio.Event) -> AbstractAsyncContextManager[OpenSharedBudget]:
        """Open the budget, and watch the collector's queue.

        Raises:
            ConfigError: the store cannot be used.
            ReadError: there is none.
        """
        ...


class OpenSharedBudget(Protocol):
    """A shared budget in use."""

    @property
    def spender(self) -> Spender | None:
        """Count what is spent; ``None`` if there is no limit."""
        ...

    @property
    def waiting_for(self) -> int:
        """Live answers that go first at this moment."""
        ...

    @property
    def turn(self) -> Callable[[], Awaitable[None]]:
        """Wait until no live answer is due, for a minute at most."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How an endpoint is reached."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ClientTls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredEvaluator:
    """A collector's evaluator, and what else decides about the carriers of its answers."""

    spec: EvaluatorSpec
    rules: ExtractRules
    attach: AttachOptions
    sessions: SessionSettings
    judges_sessions: bool = False
    """Whether the collector judges sessions."""
    live_only: tuple[str, ...] = ()
    """Settings of the file that hold for live traffic only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTargets:
    """What a collector's configuration names, for ``ragtrace doctor``."""

    evaluator: EvaluatorSpec
    endpoints: Mapping[str, Reach]
    store: Path
    """The file that keeps the work."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Must not be printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredStore:
    """A collector's store, and how the collector reads RAG calls."""

    rules: ExtractRules
    open: Callable[[Path | None], TraceReader] = field(repr=False)
    """Opens the store, or a file that is a copy, for reading with the keys of the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredAnswers:
    """The judged answers of a collector's store."""

    name: str
    index: AnswerIndex
    source: AnswerSource
    """Opens their content, in the store or where the configuration says."""
    states: Callable[[], Mapping[str, int]]
    """Counts all answers that the collector ever saw, by their state in its ledger; ReadError if it cannot be
    read."""
    screened: Callable[[int, int], Sequence[ScreenedAnswer]]
    """Returns the answers between two times that a screen looked at, judged or not."""


def collector_port() -> CollectorPort:
    """Return the collector's adapter.

    Raises:
        ConfigError: the collector, or what it needs, is not installed; the message says how to install it.
    """
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP, name=_NAME)
    if not points:
        raise ConfigError(
            "this needs ragtrace's collector, which is not installed: install ragtrace-otel again"
        )
    with needs_extra("collector"):
        port: CollectorPort = next(iter(points)).load()
    return port
