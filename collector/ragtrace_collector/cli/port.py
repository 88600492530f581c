"""What the library's commands take from the collector: `ragtrace.cli.collector_port.CollectorPort`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ragtrace.cli.collector_port import (
    CollectorPort,
    ConfiguredAnswers,
    ConfiguredEvaluator,
    ConfiguredStore,
    ConfiguredTargets,
    Reach,
    SharedBudget,
)
from ragtrace.cli.extras import needs_extra
from ragtrace.errors import InputError
from ragtrace.files.state import default_store

if TYPE_CHECKING:
    from ragtrace.answers.summary import ScreenedAnswer
    from ragtrace.ports import TraceReader
    from ragtrace.sampling import SamplingPlan
    from ragtrace.traces.extract import ExtractRules
    from ragtrace_collector.config import CollectorConfig, StoreConfig


class _Port:
    """Reads configuration files and the store; each method loads what it needs."""

    def extract_rules(self, path: Path) -> ExtractRules:
        with needs_extra("collector"):
            from ragtrace_collector.config import load_extract

        return load_extract(path)

    def sampling_plan(self, path: Path) -> SamplingPlan:
        with needs_extra("collector"):
            from ragtrace_collector.config import load_sampling

        return load_sampling(path)

    def shared_budget(self, path: Path) -> SharedBudget:
        with needs_extra("collector"):
            from ragtrace_collector.cli.shared_budget import read_shared_budget

            return read_shared_budget(path)

    def targets(self, path: Path) -> ConfiguredTargets:
        with needs_extra("collector"):
            from ragtrace_collector.config import load_config
            from ragtrace_collector.judge.spec import evaluator_spec_of

        config = load_config(path)
        endpoints = {
            export.endpoint: Reach(
                headers={name: value.get_secret_value() for name, value in export.headers.items()},
                tls=export.tls.opened() if export.tls else None,
            )
            for export in config.export
        }
        return ConfiguredTargets(
            evaluator=evaluator_spec_of(config),
            endpoints=endpoints,
            store=config.store.file,
            secrets=tuple(_secrets(config)),
        )

    def evaluator(self, path: Path) -> ConfiguredEvaluator:
        with needs_extra("collector"):
            from ragtrace_collector.config import load_config
            from ragtrace_collector.judge.live import attach_options_of
            from ragtrace_collector.judge.spec import evaluator_spec_of

        config = load_config(path)
        return ConfiguredEvaluator(
            spec=evaluator_spec_of(config),
            rules=config.extract.opened(),
            attach=attach_options_of(config),
            sessions=config.sessions.opened(tenant=config.sample.tenant),
            judges_sessions=config.sessions.enabled,
            live_only=tuple(_live_only(config)),
        )

    def store(self, path: Path) -> ConfiguredStore:
        with needs_extra("collector"):
            from ragtrace_collector.config import load_config
            from ragtrace_collector.store.open_reading import open_reading

        config = load_config(path)

        def opened(file: Path | None) -> TraceReader:
            return open_reading(config.store if file is None else config.store.over_file(file)).reader

        return ConfiguredStore(rules=config.extract.opened(), open=opened)

    def open_store(self, path: Path) -> TraceReader:
        with needs_extra("collector"):
            from ragtrace_collector.store.reader import StoreReader

        return StoreReader(path)

    @asynccontextmanager
    async def answers(self, config: Path | None, store: Path | None) -> AsyncIterator[ConfiguredAnswers]:
        with needs_extra("collector"):
            from ragtrace_collector.config import default_config_text, load_config, parse_config
            from ragtrace_collector.service.page import place_over
            from ragtrace_collector.store.ledger import read_screened, take_stock
            from ragtrace_collector.store.open_reading import open_reading

        configured = (
            load_config(config)
            if config
            else parse_config(default_config_text(), where="the default configuration")
        )
        section = configured.store if config and not store else _over_file(configured.store, store)
        if not section.file.is_file():
            raise InputError(
                f"there is no collector's store {str(section.file)!r}: start `ragtrace collector`, name "
                "another with --from store:PATH or --config FILE, or read a back end: "
                "--from jaeger:http://localhost:16686"
            )
        found = open_reading(section)
        async with place_over(found, configured) as place:

            def states() -> Mapping[str, int]:
                return take_stock(found.path).by(lambda account: account.state)

            def screened(since_ns: int, until_ns: int) -> Sequence[ScreenedAnswer]:
                return read_screened(found.path, since_ns, until_ns)

            yield ConfiguredAnswers(
                name=found.name, index=place.index, source=place.source, states=states, screened=screened
            )


PORT: CollectorPort = _Port()


def _over_file(section: StoreConfig, named: Path | None) -> StoreConfig:
    return section.over_file(named or default_store())


def _live_only(config: CollectorConfig) -> Iterator[str]:
    if config.judge.cheaper is not None:
        yield "judge.cheaper"
    if config.attach.mode == "hold":
        yield "attach.mode: hold"


def _secrets(config: CollectorConfig) -> Iterator[str]:
    from ragtrace_collector.judge.spec import cheaper_spec_of, evaluator_spec_of

    evaluator, cheaper = evaluator_spec_of(config), cheaper_spec_of(config)
    for judge in (evaluator.judge, evaluator.second, evaluator.embedder, cheaper and cheaper.judge):
        yield from judge.secrets if judge else ()
    for export in config.export:
        yield from (value.get_secret_value() for value in export.headers.values())
