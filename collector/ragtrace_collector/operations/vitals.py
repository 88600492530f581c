"""The collector's state, as its probes, pages and metrics show it; each is read at one moment."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from opentelemetry.metrics import Observation
from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
from starlette.applications import Starlette
from starlette.routing import Route

from ragtrace import semconv
from ragtrace.budget import LimitUsage
from ragtrace.drift import DriftState, RunResult
from ragtrace.errors import RagtraceError
from ragtrace.ports import Clock
from ragtrace_collector.config import TelemetryConfig
from ragtrace_collector.judge import JudgeGuard, LiveConfig
from ragtrace_collector.ledger import WINDOW_MINUTES, Coverage, CoverageOf, Ledger, State
from ragtrace_collector.operations.metrics import Readings, SelfMetrics, read_all
from ragtrace_collector.operations.pages import LoopLag, Phase, Readiness, pages_app
from ragtrace_collector.operations.signals import digest_of, notify_watchdog, watchdog_pause_s
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import ConsumerState, Counters
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.telemetry.scores import Scores
from ragtrace_collector.telemetry.tracing import open_metric_exporter
from ragtrace_collector.web.server import HttpServer, ReceiverAuth, open_socket

log = logging.getLogger("ragtrace.collector")


_STORE_TIMEOUT_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Vitals:
    """Reads the collector's state."""

    store: Store
    counters: Counters
    clock: Clock
    store_limit_bytes: int
    live: LiveConfig
    coverage: Coverage
    drift: Callable[[], Awaitable[DriftState]]
    """Reads whether the judge is steady."""
    sink_names: Mapping[str, str]
    """The display name of each endpoint, without parts that may be a key."""
    kafka: Callable[[], ConsumerState] | None = None
    """Reads how the receiver of topics is, if there is one."""
    has_listeners: bool = True
    """Whether spans may come in without it."""
    judges: bool = True
    """Whether it judges answers. Else what waits in a shared store for a second attempt is others'."""
    phase: Phase = Phase.STARTING
    lag: LoopLag = field(default_factory=LoopLag)
    reloads: Counter[str] = field(default_factory=Counter)
    """Reloads since the start: ``applied`` or ``refused``."""

    async def readiness(self) -> Readiness:
        """Say whether spans are accepted now. An unavailable judge is no obstacle: answers wait on disk."""
        reasons = [str(self.phase)] if self.phase is not Phase.SERVING else []
        trouble = await self._store_trouble()
        stopped = self.judge_stopped()
        notes = [f"nothing is judged, and answers wait on disk: {stopped}"] if stopped else []
        if not stopped and (outcome := self.coverage.why_none()):
            notes = [f"no answer of the last {WINDOW_MINUTES} minutes got a score: {outcome}"]
        unread = self._nothing_read()
        (notes if self.has_listeners else reasons).extend([unread] if unread else [])
        return Readiness(
            reasons=(*reasons, *([trouble] if trouble else [])),
            notes=tuple(notes),
            is_judging=stopped is None,
        )

    def _nothing_read(self) -> str | None:
        trouble = self.kafka().trouble if self.kafka else None
        return f"nothing is read from Kafka: {trouble}" if trouble else None

    def judge_stopped(self) -> str | None:
        """Return why nothing is judged, as an outcome (``failed:judge_refused``); ``None`` if answers are."""
        return self.live.now.guarded.stopped()

    async def status(self, tenant: str | None = None) -> Mapping[str, object]:
        """Return the status page: the state, the ledger, and the counters since the start.

        A tenant sees whether spans are accepted, and its own answers.
        """
        ready = await self.readiness()
        if tenant is not None:
            own = await self.store.ledger(tenant)
            of_collector = {"phase": self.phase, "ready": ready.is_ready}
            return {"collector": of_collector, "ledger": own.sums(), "store": own.by_name()}
        ledger, index = await self.store.ledger(), await self.store.index_size()
        return {
            "collector": {
                "phase": self.phase,
                "ready": ready.is_ready,
                "judging": ready.is_judging,
                "reasons": ready.reasons,
                "notes": ready.notes,
                "config": digest_of(self.live.now.config),
                "reloads": dict(self.reloads),
            },
            "judges": {guard.name: _told(guard) for guard in self._guards()},
            "budget": [each._asdict() for each in await self._left()],
            "ledger": ledger.sums(),
            "store": ledger.by_name(),
            "drift": drift_status(await self.drift()),
            **({"kafka": _told_consumer(self.kafka())} if self.kafka else {}),
            "index": {"rows": index.rows, "oldest": _moment(index.oldest_ns)},
            "since_start": self.counters.snapshot(),
        }

    async def readings(self) -> Readings:
        """Return every metric's values. Answers and outbox items are read at one moment."""
        ready, ledger = await self.readiness(), await self.store.ledger()
        left, index = await self._left(), await self.store.index_size()
        readings = read_all(ledger, self.counters.snapshot(), now_ns=self.clock.now_ns())
        return {
            **readings,
            "ragtrace.outbox": tuple(
                Observation(each.value, {**of_sink, "sink": self._sink_name(of_sink.get("sink"))})
                for each in readings["ragtrace.outbox"]
                for of_sink in [each.attributes or {}]
            ),
            **(self._covered(ledger) if self.judges else {}),
            "ragtrace.store.limit": (Observation(self.store_limit_bytes),),
            **drift_readings(await self.drift()),
            "ragtrace.index.rows": (Observation(index.rows),),
            "ragtrace.judge.concurrency": tuple(
                Observation(guard.limiter.limit, {"judge": guard.name})
                for guard in self._guards()
                if guard.limiter
            ),
            "ragtrace.judge.usages_doubted": tuple(
                Observation(guard.doubts, {"judge": guard.name}) for guard in self._guards()
            ),
            "ragtrace.budget.spent": tuple(Observation(each.spent, {"limit": each.limit}) for each in left),
            "ragtrace.budget.limit": tuple(Observation(each.most, {"limit": each.limit}) for each in left),
            "ragtrace.budget.share_to_sample": tuple(self._shares()),
            "ragtrace.judge.stopped": tuple(self._stops()),
            **(_consumer_readings(self.kafka()) if self.kafka else {}),
            "ragtrace.collector.ready": (Observation(int(ready.is_ready)),),
            "ragtrace.collector.tasks": (Observation(len(asyncio.all_tasks())),),
            "ragtrace.collector.loop_lag": (Observation(self.lag.seconds),),
            "ragtrace.collector.config": (Observation(1, {"digest": digest_of(self.live.now.config)}),),
            "ragtrace.collector.reloads": tuple(
                Observation(self.reloads[result], {"result": result}) for result in ("applied", "refused")
            ),
        }

    def _covered(self, ledger: Ledger) -> Readings:
        waiting = ledger.by(lambda account: account.state).get(State.POSTPONED, 0)
        metrics = self.live.now.guarded.evaluator.metrics
        found = {
            name: covered
            for name, covered in self.coverage.by_metric(metrics, waiting=waiting).items()
            if covered.chosen
        }

        def each(value: Callable[[CoverageOf], float]) -> tuple[Observation, ...]:
            return tuple(
                Observation(value(covered), {semconv.EVALUATION_NAME: name})
                for name, covered in found.items()
            )

        return {
            "ragtrace.evaluation.judged": each(lambda covered: covered.scored),
            "ragtrace.evaluation.chosen": each(lambda covered: covered.chosen),
            "ragtrace.evaluation.coverage": each(lambda covered: covered.scored / covered.chosen),
        }

    def _stops(self) -> Iterator[Observation]:
        state = (self.judge_stopped() or "").partition(":")[0]
        for why in (State.FAILED, State.OVER_BUDGET):
            yield Observation(int(state == why), {"why": why})

    def _guards(self) -> tuple[JudgeGuard, ...]:
        guards = self.live.now.guarded.guards
        return tuple(guards.by_name.values()) if guards else ()

    def _shares(self) -> Iterator[Observation]:
        guards = self.live.now.guarded.guards
        if guards is not None and guards.budget_guard is not None:
            yield Observation(guards.budget_guard.share_to_sample)

    async def _left(self) -> tuple[LimitUsage, ...]:
        guards = self.live.now.guarded.guards
        return await guards.left() if guards else ()

    def _sink_name(self, endpoint: object) -> str:
        return self.sink_names.get(str(endpoint), "none of the configuration")

    async def _store_trouble(self) -> str | None:
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                await self.store.check()
        except StoreUnavailable as exc:
            return str(exc)
        except TimeoutError:
            return f"the store did not answer within {_STORE_TIMEOUT_S:g} s"
        return None


def _moment(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).isoformat(timespec="seconds")


def _told_consumer(state: ConsumerState) -> Mapping[str, object]:
    return {
        "reading": state.trouble is None,
        "reason": state.trouble,
        "paused": state.is_paused,
        "partitions": state.partitions,
        "lag": sum(state.lag.values()),
    }


def _consumer_readings(state: ConsumerState) -> Readings:
    return {
        "ragtrace.kafka.connected": (Observation(int(state.trouble is None)),),
        "ragtrace.kafka.partitions": (Observation(state.partitions),),
        "ragtrace.kafka.lag": tuple(
            Observation(behind, {"topic": topic, "partition": str(partition)})
            for (topic, partition), behind in sorted(state.lag.items())
        ),
    }


def _told(guard: JudgeGuard) -> Mapping[str, object]:
    at_once = guard.limiter.limit if guard.limiter else None
    return {
        "state": guard.state,
        "reason": guard.trouble,
        "at_once": at_once,
        "usages_doubted": guard.doubts,
    }


def drift_readings(state: DriftState) -> Mapping[str, Sequence[Observation]]:
    """Return the values of the metrics. Before the first complete run, there is neither score nor verdict."""
    last, runs, changes = state.last, state.runs or {}, state.model_changes or {}
    agreed, labeled = last.agreement() if last else (0, 0)
    means = last.means() if last else {}
    return {
        "ragtrace.drift.score": tuple(
            Observation(mean, {"gen_ai.evaluation.name": metric}) for metric, mean in means.items()
        ),
        "ragtrace.drift.agreement": (Observation(agreed / labeled),) if labeled else (),
        "ragtrace.drift.detected": (Observation(int(state.is_drifted)),) if last else (),
        "ragtrace.drift.runs": tuple(
            Observation(runs.get(result, 0), {"result": str(result)}) for result in RunResult
        ),
        "ragtrace.judge.model_changes": tuple(
            Observation(number, {"gen_ai.request.model": model}) for model, number in changes.items()
        ),
    }


def drift_status(state: DriftState) -> Mapping[str, object]:
    """Return what the status page says."""
    last = state.last
    agreed, labeled = last.agreement() if last else (0, 0)
    return {
        "detected": state.is_drifted if last else None,
        "since_ns": state.since_ns if state.is_drifted else None,
        "judged": last.judged if last else 0,
        "anchors": last.anchors if last else 0,
        "agreed": agreed,
        "labeled": labeled,
        "model_changes": dict(state.model_changes or {}),
        "marks": [{"at_ns": at_ns, "what": what} for at_ns, what in state.marks],
    }


@dataclass(slots=True, kw_only=True)
class Operations:
    """Reports the collector's state: opened, then started and stopped."""

    config: TelemetryConfig
    vitals: Vitals
    auth: ReceiverAuth
    scores: Scores | None = None
    accounts: tuple[Route, ...] = ()
    """Pages about single answers, and all of them."""
    port: int | None = None
    """The port of the pages, once they are open."""
    _server: HttpServer | None = None
    _metrics: SelfMetrics = field(init=False)
    _beats: list[asyncio.Task[None]] = field(default_factory=list)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the pages and the exporter of metrics; close them in the end.

        Raises:
            ConfigError: the address of the pages cannot be bound.
        """
        endpoint = self.config.otlp_endpoint
        exporter = open_metric_exporter(endpoint) if endpoint else None
        self._metrics = SelfMetrics(self.vitals.readings, push_to=exporter, scores=self.scores)
        async with aclosing(self._metrics):
            if self.config.listen is None:
                yield
            else:
                with closing(open_socket(self.config.listen, key="telemetry.listen")) as listening:
                    self.port = listening.getsockname()[1]
                    self._server = HttpServer(self._pages(), listening, certificate=self.auth.certificate)
                    yield
            await self._push()  # after the drain, so that its changes are included

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serve the pages, push the metrics and answer the watchdog, as tasks of this group."""
        if self._server is not None:
            tasks.create_task(self._server.serve(), name="pages")
        self._beats = [tasks.create_task(beat) for beat in self._beating()]

    def stop(self) -> None:
        """End the tasks. They end last, so that the pages show the drain."""
        if self._server is not None:
            self._server.stop()
        for beat in self._beats:
            beat.cancel()

    def _beating(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self.vitals.lag.watch()
        if self.config.otlp_endpoint:
            interval_ms = float(os.environ.get(OTEL_METRIC_EXPORT_INTERVAL, 60_000))
            yield _every(interval_ms / 1000, self._push)
        if pause_s := watchdog_pause_s():
            yield _every(pause_s, _notify_watchdog)

    async def _push(self) -> None:
        try:
            await self._metrics.push()
        except RagtraceError as exc:  # the store cannot be read: the next push includes its values
            log.warning("the collector's own metrics were not sent: %s", exc, extra=event("metrics_unread"))

    def _pages(self) -> Starlette:
        return pages_app(
            readiness=self.vitals.readiness,
            status=self.vitals.status,
            metrics=self._metrics,
            access=self.auth.access,
            accounts=self.accounts,
        )


async def _notify_watchdog() -> None:
    notify_watchdog()


async def _every(pause_s: float, beat: Callable[[], Awaitable[None]]) -> None:
    while True:
        await beat()
        await asyncio.sleep(pause_s)
