"""One try: a collector, who sends to it, where its carriers go; and, at the end, the account."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode
from ragtrace.traces.trace import Span
from ragtrace_collector.ledger import Ledger
from ragtrace_collector.store.ledger import read_ledger
from tests.backends.postgres_server import Postgres
from tests.backends.process import eventually
from tests.faults.disk import Blow
from tests.faults.servers import BackEnd
from tests.faults.victim import Died, Refused, Victim
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of
from tests.stores.place import Place, PostgresPlace

_PAUSE_S: Final = 0.05


class Tally(NamedTuple):
    """What became of the answers of one try. All zeros is what was promised."""

    lost: int = 0
    """Acknowledged, and no carrier came."""
    doubled: int = 0
    """Carriers beyond the one of an answer; in a file, also the same carrier twice."""
    unaccounted: int = 0
    """Answers by which the ledger does not say what was acknowledged, or does not add up."""

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        return cls(*map(sum, zip(cls(), *tallies, strict=True)))


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a try takes place."""

    folder: Path
    place: Place | PostgresPlace
    """Of the store."""


Grounds: TypeAlias = Callable[[Path], Ground]
"""Makes a ground with an empty store, and a folder that is not there yet."""


def on(server: Postgres | None) -> Grounds:
    """Return what makes grounds on a server, or in files."""

    def ground(folder: Path) -> Ground:
        place = Place(folder / "store.db") if server is None else PostgresPlace(server, server.new_database())
        return Ground(folder, place)

    return ground


class Scene:
    """A folder and a store, the collectors that run on it one after the other, and the traffic."""

    def __init__(
        self,
        ground: Ground,
        *,
        back_end: BackEnd | None = None,
        changes: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        self.place, folder = ground.place, ground.folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "collector.log").touch()  # one that is killed at once writes none
        self.folder = folder
        self.config = _config(ground, back_end, changes)
        self.told: Counter[int] = Counter()
        """How often the collectors answered with which HTTP status."""
        self._back_end = back_end
        self._victim: Victim | None = None
        self._sent = 0
        self._acknowledged: set[int] = set()
        self._acknowledging = threading.Condition()

    @property
    def store(self) -> Path:
        assert isinstance(self.place, Place)
        return self.place.path

    @property
    def log(self) -> str:
        return (self.folder / "collector.log").read_text()

    @property
    def victim(self) -> Victim:
        assert self._victim is not None, "no collector was started"
        return self._victim

    def start(self, blow: Blow | None = None, *, kill_after_s: float | None = None) -> None:
        """Start a collector, or another one where one has died. One that is struck as it starts is none."""
        self._victim = None
        try:
            self._victim = Victim.start(self.folder, self.config, blow=blow, kill_after_s=kill_after_s)
        except (Died, Refused) as exc:
            if (blow is None and kill_after_s is None) or "Traceback" in str(exc):
                raise

    def stop(self) -> None:
        if self._victim is not None:
            self._victim.stop()
            self._victim = None

    def kill(self) -> None:
        if self._victim is not None:
            self._victim.kill()

    def set_clock_back_an_hour(self) -> None:
        (self.folder / "clock").write_text("-3600")

    def send(self, answers: int) -> None:
        """Send answers, each request until it is acknowledged, and start a collector where one has died."""
        for _ in range(answers):
            self._send_one(self.revive)

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Send answers all the while, and at the end until the last one is acknowledged."""
        over = threading.Event()

        def keep_sending() -> None:
            while not over.is_set():
                self._send_one(lambda: None)

        sending = threading.Thread(target=keep_sending)
        sending.start()
        try:
            yield
        finally:
            over.set()
            while sending.is_alive():
                sending.join(_PAUSE_S)
                self.revive()

    def await_traffic(self, *, answers: int) -> None:
        with self._acknowledging:
            wanted = len(self._acknowledged) + answers
            if not self._acknowledging.wait_for(
                lambda: len(self._acknowledged) >= wanted, timeout=PATIENCE_S
            ):
                raise TimeoutError("the collector takes nothing any more")

    def await_work(self) -> None:
        """Return right when another carrier has come: the store is in use."""
        before = len(self._found())
        eventually(lambda: len(self._found()) > before, what="the next carrier")

    def revive(self) -> None:
        if self._victim is None or not self._victim.is_alive():
            self.start()

    def await_carriers(self) -> None:
        """Wait until what was acknowledged is delivered, and known to be; what then is not there is lost."""
        wanted = {trace_id_of(number) for number in self._acknowledged}

        def all_came() -> bool:
            self.revive()
            return wanted <= {trace_id for trace_id, _ in self._found()} and not self._is_under_way()

        with suppress(TimeoutError):  # told by the account
            eventually(all_came, what="carriers")

    def account(self) -> Tally:
        """Wait for what is under way, stop, and compare what was acknowledged with what is there."""
        self.await_carriers()
        self.stop()
        found, copies = self._found(), self._copies()
        by_trace: defaultdict[str, int] = defaultdict(int)
        for (trace_id, _), contents in found.items():
            by_trace[trace_id] += len(contents)
        wanted = {trace_id_of(number) for number in self._acknowledged}
        return Tally(
            lost=len(wanted - by_trace.keys()),
            doubled=sum(number - 1 for number in by_trace.values()) + copies,
            unaccounted=self._unaccounted(len(wanted)),
        )

    def ledger(self) -> Ledger:
        with self.place.database.reading() as db:
            return read_ledger(db)

    def _is_under_way(self) -> bool:
        ledger = self.ledger()
        return bool(ledger.pending or ledger.outbox_items_in("waiting"))

    def _unaccounted(self, answers: int) -> int:
        ledger = self.ledger()
        if not ledger.adds_up:
            return max(1, abs(ledger.seen - ledger.pending - ledger.ended))
        return abs(answers - ledger.seen) + ledger.pending + ledger.outbox_items_in("waiting")

    def _found(self) -> Mapping[tuple[str, str], set[str]]:
        if self._back_end is not None:
            return {ids: set(contents) for ids, contents in list(self._back_end.spans.items())}
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for span in _spans_in(self.folder / "out.jsonl"):
            found[span.trace_id, span.span_id].add(repr(span))
        return found

    def _copies(self) -> int:
        """Count equal carriers in the file; a network's back end may be sent the same one twice."""
        times = Counter(
            (span.trace_id, span.span_id, repr(span)) for span in _spans_in(self.folder / "out.jsonl")
        )
        return sum(number - 1 for number in times.values())

    def _send_one(self, after_refusal: Callable[[], None]) -> None:
        number, self._sent = self._sent, self._sent + 1
        root, retrieval, generation = rag_trace(number)
        deadline = time.monotonic() + PATIENCE_S
        for part in ((generation,), (root, retrieval)) if number % 2 else ((root, retrieval, generation),):
            while not self._is_taken(encode(part)):
                if time.monotonic() > deadline:
                    raise TimeoutError("the collector takes nothing any more")
                after_refusal()
                time.sleep(_PAUSE_S)
        with self._acknowledging:
            self._acknowledged.add(number)
            self._acknowledging.notify_all()

    def _is_taken(self, body: bytes) -> bool:
        victim = self._victim
        if victim is None:
            return False
        connection = http.client.HTTPConnection("127.0.0.1", victim.port, timeout=PATIENCE_S)
        try:
            connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        self.told[status] += 1
        return status == 200


class HeldScene(Scene):
    """A collector in hold mode, between the application and its back end.

    The back end must get every span in one version, and every score once.
    """

    def __init__(self, ground: Ground) -> None:
        self._receiver = BackEnd()
        super().__init__(ground, back_end=self._receiver)
        (export,) = self.config["export"]
        self.config = {
            **self.config,
            "attach": {"mode": "hold", "hold_timeout": "1s"},
            "export": [{**export, "forward": True}],
        }

    def stop(self) -> None:
        super().stop()
        self._receiver.close()

    def account(self) -> Tally:
        """Count original spans, too: each must come, and never in two versions."""
        tally, versions = super().account(), self._versions()
        doubled = sum(number - 1 for number in versions if number)
        return Tally.sum([tally, Tally(lost=versions.count(0), doubled=doubled)])

    def _versions(self) -> list[int]:
        return [
            len(self._receiver.spans.get((span.trace_id, span.span_id), ()))
            for number in self._acknowledged
            for span in rag_trace(number)
        ]

    def _is_under_way(self) -> bool:
        # Beside a writer that was killed within a lease, one that stops leaves held spans in the store.
        return super()._is_under_way() or 0 in self._versions()

    def _found(self) -> Mapping[tuple[str, str], set[str]]:
        """Return what tells a score: a carrier, or the answer span itself."""
        score = f"{semconv.SCORE_PREFIX}faithfulness"
        told = {
            ids: {content for content in contents if score in content}
            for ids, contents in list(self._receiver.spans.items())
        }
        return {ids: contents for ids, contents in told.items() if contents}


def _config(
    ground: Ground, back_end: BackEnd | None, changes: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    endpoint = (
        f"otlp-file:{ground.folder / 'out.jsonl'}"
        if back_end is None
        else f"http://127.0.0.1:{back_end.port}"
    )
    config: dict[str, Any] = {
        "receive": {"grpc": None, "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "50ms", "deadline": "5m", "linger": "1h"},
        "judge": {"use": "scripted", "max_concurrency": 2},
        "evaluate": {},
        "attach": {"carrier_time": "target"},
        "export": [{"endpoint": endpoint}],
        "store": ground.place.config,
        "telemetry": {"listen": None},
        "log_level": "warning",
        "drain_timeout": "10s",
    }
    for section, values in changes.items():
        config[section] = {**config[section], **values}
    return config


def _spans_in(file: Path) -> list[Span]:
    if not file.exists():
        return []
    *lines, _under_way = file.read_text("utf-8").split("\n")
    return [
        span
        for line in lines
        for span in decode_json(line)
        if span.scope is not None and span.scope.name == semconv.SCOPE_EVALUATION
    ]
