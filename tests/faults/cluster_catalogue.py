"""The faults of collectors whose store is in Kafka: those that any store has, and some of its own."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Final

from ragtrace_collector.config import StoreConfig
from ragtrace_collector.store.changelog.copy import VERSION_KEY
from ragtrace_collector.store.changelog.kafka import KafkaRowLog
from ragtrace_collector.store.changelog.log import LoggedRow
from ragtrace_collector.store.schema import NEWEST
from tests.backends.process import eventually
from tests.cluster.scene import Broker
from tests.faults.catalogue import LASTS_S, as_it_is, catalogue, damage_a_page, says
from tests.faults.place import SESSION_S, SHARDS, KafkaPlace, Place
from tests.faults.scene import Scene, Tally
from tests.faults.servers import BackEnd, closing_all
from tests.faults.table import Fault, Made, Try
from tests.faults.victim import Victim

__all__ = ["cluster_catalogue"]

_AWAY_S: Final = 5.0
_NOT_TRIED: Final[Mapping[str, str]] = {
    "killed before statement n of a migration and its work": "no cluster has state of the first version",
    "a damaged page; the backup made meanwhile is restored": "copies have no backup; a damaged one is below",
    "a second collector on the same store": "it is a member of the group, below",
    "a store of a newer version": "the state has a version of its own, below",
    "back end answers 500": "OTLP forbids to try again, and `outbox --retry` is refused: a back-fill does it",
}
"""What has no meaning there, and why."""


def cluster_catalogue(*, kills: int, every: int, times: int) -> Mapping[str, Made]:
    """Return all faults by their names, as `catalogue` does; what has no meaning there has a reason."""
    common = catalogue(kills=kills, every=every, times=times)
    unknown = _NOT_TRIED.keys() - common.keys()
    assert not unknown, unknown
    left = (Fault(name=name, tries=(), not_tried=reason) for name, reason in _NOT_TRIED.items())
    return {**common, **{fault.name: partial(as_it_is, fault) for fault in (*_own(times), *left)}}


def _own(times: int) -> Iterator[Fault]:
    ones: Mapping[str, Callable[[KafkaPlace], Tally]] = {
        "the copies are deleted between two kills": _copies_deleted,
        "a copy is deleted while it is in use": _copy_deleted,
        "a second member joins, and is killed for good": _second_member,
        "a member is paused beyond its session": _paused,
        "state of a newer version": _newer_state,
    }
    for name, one in ones.items():
        yield Fault(name=name, tries=[_in_kafka(one)] * times)
    for name, strike in {
        "stopped for a while": Broker.stop,
        "killed, and started again": Broker.kill,
    }.items():
        one = partial(_broker_away, strike)
        yield Fault(name=f"the broker is {name}", tries=[_in_kafka(one)] * times, is_for_all=True)
    damaged = [_in_kafka(partial(_damaged_copy, seed)) for seed in range(2 * times)]
    yield Fault(name="a damaged page of a copy", tries=damaged)


def _in_kafka(one: Callable[[KafkaPlace], Tally]) -> Try:
    def try_it(place: Place) -> Tally:
        assert isinstance(place, KafkaPlace)
        return one(place)

    return try_it


def _copies_deleted(place: KafkaPlace) -> Tally:
    scene = Scene(place)
    scene.start()
    with scene.traffic():
        scene.await_work()
        scene.kill()
        shutil.rmtree(place.shards)
        scene.start()
        scene.await_work()
        scene.kill()
    return scene.account()


def _copy_deleted(place: KafkaPlace) -> Tally:
    scene = Scene(place)
    scene.start()
    with scene.traffic():
        scene.await_work()
        scene.store.unlink()
        time.sleep(LASTS_S)
    return scene.account()


def _damaged_copy(seed: int, place: KafkaPlace) -> Tally:
    scene = Scene(place)
    scene.start()
    with scene.traffic():
        scene.await_work()
    scene.stop()
    damage_a_page(scene.store, Random(seed))
    scene.start()
    scene.send(4)
    scene.await_carriers()
    return scene.account()


def _second_member(place: KafkaPlace) -> Tally:
    back_end = BackEnd()  # a file has one writer
    with closing_all(back_end):
        scene = Scene(place, back_end=back_end)
        scene.start()
        with scene.traffic():
            scene.await_work()
            with _another(scene, place) as other:
                scene.await_work()
                other.kill()
        return scene.account()


def _paused(place: KafkaPlace) -> Tally:
    back_end = BackEnd()
    with closing_all(back_end):
        scene = Scene(place, back_end=back_end)
        scene.start()
        with _another(scene, place) as other:
            pid = other.process.pid
            assert pid is not None
            with scene.traffic():
                scene.await_work()
                os.kill(pid, signal.SIGSTOP)
                time.sleep(1.5 * SESSION_S)
                os.kill(pid, signal.SIGCONT)
                scene.await_work()
            tally = scene.account()
        says(scene.log, "has another owner")
        return tally


def _newer_state(place: KafkaPlace) -> Tally:
    scene = Scene(place)
    scene.start()
    scene.send(4)
    scene.await_carriers()
    scene.stop()
    logs = [_log_of(place, number) for number in range(SHARDS)]
    kept = [_rows_of(log) for log in logs]
    for log in logs:
        log.open()
        log.write([_version(NEWEST + 1)])
    scene.start()
    scene.send(4)
    eventually(lambda: scene.log.count("newer ragtrace") >= SHARDS, what="a refusal")
    scene.stop()
    for log, rows in zip(logs, kept, strict=True):
        log.open()
        log.write([_version(NEWEST), *rows])
        log.close()
    return scene.account()


def _broker_away(strike: Callable[[Broker], None], place: KafkaPlace) -> Tally:
    scene = Scene(place)
    scene.start()
    with scene.traffic():
        scene.await_work()
        strike(place.broker)
        time.sleep(_AWAY_S)
        place.broker.start()
    return scene.account()


@contextmanager
def _another(scene: Scene, place: KafkaPlace) -> Iterator[Victim]:
    """Let another member run that has a shard, and kill it in the end."""
    other = Victim.start(scene.folder, {**scene.config, "store": scene.place.store("second")})
    try:
        eventually(lambda: list(place.shards.glob("process-1/shard-*.db")), what="its shard")
        yield other
    finally:
        other.kill()


def _log_of(place: KafkaPlace, number: int) -> KafkaRowLog:
    kafka = StoreConfig.model_validate(place.store()).kafka
    assert kafka is not None
    return KafkaRowLog(
        kafka.client_settings(),
        topic=kafka.state,
        partition=number,
        transactional_id=kafka.transactional_id(number),
    )


def _rows_of(log: KafkaRowLog) -> list[LoggedRow]:
    """Return the newest row of each key."""
    rows = {(row.table, row.key): row for batch in log.read(log.look().start) for row in batch.rows}
    del rows[_version(NEWEST).table, VERSION_KEY]
    return list(rows.values())


def _version(number: int) -> LoggedRow:
    return LoggedRow("", VERSION_KEY, (number,))
