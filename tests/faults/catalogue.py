"""The faults: what is done to a collector while answers come in, and what it must come through unharmed."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

from tests.backends.postgres_server import Postgres
from tests.faults.disk import FULL, READ_ONLY, Blow, Kind
from tests.faults.scene import Ground, Grounds, HeldScene, Scene, Tally
from tests.faults.servers import BackEnd, slow_judge
from tests.stores.place import PostgresPlace

Engine: TypeAlias = Literal["SQLite", "PostgreSQL"]
Strike: TypeAlias = Callable[[Scene], object]
Try: TypeAlias = Callable[[Ground], Tally]
"""Strikes a collector on a ground of its own, and gives account."""
ENGINES: Final[Sequence[Engine]] = ("SQLite", "PostgreSQL")

LASTS_S: Final = 1.5
_SHARE_AT_START: Final = 0.25
_SHARE_AT_WORK: Final = 0.7
_STATEMENTS: Final[Mapping[Engine, Mapping[str, tuple[Kind, Callable[[Ground], Scene]]]]] = {
    "SQLite": {
        "killed before statement n": ("killed", Scene),
        "I/O error at statement n": ("io error", Scene),
        "disk full at statement n": ("full", Scene),
        "killed before statement n in hold mode": ("killed", HeldScene),
    },
    "PostgreSQL": {
        "killed before statement n": ("killed", Scene),
        "connection cut at statement or commit n": ("cut", Scene),
        "disk full at statement n": ("full", Scene),
        "killed before statement n in hold mode": ("killed", HeldScene),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is done to a collector, in several tries."""

    name: str
    tries: Sequence[Try]
    is_for_all: bool = False
    """Whether it strikes what other tries use, too: then there is one try at a time."""


Made: TypeAlias = Callable[[Grounds], Fault]
"""A fault, made when it is tried: of some the tries are not known before statements are counted."""


def catalogue(engine: Engine, *, kills: int, every: int, times: int, away_s: float) -> Mapping[str, Made]:
    """Return all faults by their names.

    Args:
        engine: What keeps the store.
        kills: How often a collector is killed at a random moment.
        every: Each how-manieth statement is one to fail at; 1 is every one.
        times: How often a fault is tried that has no moments to choose from.
        away_s: How long a server's database is away.
    """
    of_engine = _of_sqlite(times) if engine == "SQLite" else _of_postgres(times, away_s)
    ready = (*_kills(kills // 4), *_clocks(times), *of_engine)
    counted = {
        name: partial(_at_statements, name, every, *found) for name, found in _STATEMENTS[engine].items()
    }
    return counted | {fault.name: lambda _, fault=fault: fault for fault in ready}


def _kills(times: int) -> Iterator[Fault]:
    where = {
        "file": _killed_twice,
        "back end, slow judge": _killed_twice_while_judging,
        "hold mode": _killed_twice_while_holding,
    }
    for name, kill in where.items():
        yield Fault(
            name=f"killed at a random moment ({name})", tries=[partial(kill, seed) for seed in range(times)]
        )


def _clocks(times: int) -> Iterator[Fault]:
    clocks: Mapping[str, Strike] = {
        "clock set back an hour": _set_clock_back,
        "clock set back an hour over a restart": _set_clock_back_over_restart,
    }
    for name, strike in clocks.items():
        yield Fault(name=name, tries=[partial(_struck, strike)] * times)


def _of_sqlite(times: int) -> Iterator[Fault]:
    strikes: Mapping[str, Strike] = {
        "disk full for a while": partial(_set_weather, FULL),
        "disk read-only for a while": partial(_set_weather, READ_ONLY),
        "stopped in order while the disk is full": _stop_while_full,
        "another program locks the store for longer than is waited": _lock,
        "the store's file is moved away, and back": _move,
    }
    for name, strike in strikes.items():
        yield Fault(name=name, tries=[partial(_struck, strike)] * times)


def _of_postgres(times: int, away_s: float) -> Iterator[Fault]:
    name = "all connections are cut, again and again"
    yield Fault(name=name, tries=[partial(_struck, _cut_again_and_again)] * times)
    killed = partial(_strike_server, signal.SIGQUIT, LASTS_S)
    of_server = {
        "the database is killed, and recovers": partial(_struck, killed),
        "the power of all fails": _all_killed,
        f"the database is stopped for {away_s:g} s": partial(_database_stopped, away_s),
    }
    for name, one in of_server.items():
        yield Fault(name=name, tries=[one] * times, is_for_all=True)


def _struck(strike: Strike, ground: Ground) -> Tally:
    struck = Scene(ground)
    struck.start()
    with struck.traffic():
        struck.await_work()
        strike(struck)
    return struck.account()


def _killed_twice(seed: int, ground: Ground) -> Tally:
    return _kill_twice(Scene(ground), Random(seed))


def _killed_twice_while_judging(seed: int, ground: Ground) -> Tally:
    with slow_judge(0.05) as url, closing(BackEnd()) as back_end:
        return _kill_twice(Scene(ground, back_end=back_end, changes=_asking(url)), Random(seed))


def _killed_twice_while_holding(seed: int, ground: Ground) -> Tally:
    return _kill_twice(HeldScene(ground), Random(seed))


def _kill_twice(scene: Scene, random: Random) -> Tally:
    with scene.traffic():
        for _ in range(2):
            if random.random() < _SHARE_AT_START:
                scene.start(kill_after_s=random.uniform(0, 1))
            else:
                scene.start()
                if random.random() < _SHARE_AT_WORK:
                    scene.await_work()
                scene.await_traffic(answers=random.randrange(1, 30))
                # at once: what was just acknowledged must be on disk; or later, in the middle of work
                time.sleep(random.choice((0, random.uniform(0, 0.3))))
            scene.kill()
    return scene.account()


def _at_statements(
    name: str, every: int, kind: Kind, scene_of: Callable[[Ground], Scene], grounds: Grounds
) -> Fault:
    def struck(at: int, ground: Ground) -> Tally:
        scene = scene_of(ground)
        scene.start(Blow(kind=kind, at=at))
        scene.send(2)
        return scene.account()

    with TemporaryDirectory(prefix="ragtrace-faults-") as folder:  # an undisturbed run, to count them
        scene = scene_of(grounds(Path(folder)))
        scene.start()
        scene.send(2)
        scene.await_carriers()
        number = int((scene.folder / "statements").read_text())
        scene.stop()
    tries = [partial(struck, at) for at in range(1, number + 1, every)]
    return Fault(name=f"{name}, n = 1, {1 + every} … {number}", tries=tries)


def _set_clock_back(scene: Scene) -> None:
    time.sleep(0.2)
    scene.set_clock_back_an_hour()
    time.sleep(0.5)


def _set_clock_back_over_restart(scene: Scene) -> None:
    time.sleep(0.2)
    scene.kill()
    scene.set_clock_back_an_hour()
    scene.revive()
    time.sleep(0.5)


def _asking(judge: str) -> Mapping[str, Mapping[str, Any]]:
    return {
        "judge": {
            "use": "openai:rule",
            "base_url": judge,
            "api_key_env": "JUDGE_KEY",
            "timeout": "1s",
            "max_concurrency": 8,
            "sentinel_rate": 0,
        },
        "evaluate": {"retry_delays": ["1s"] * 30},
    }


def _set_weather(name: str, scene: Scene) -> None:
    (scene.folder / name).touch()
    time.sleep(LASTS_S)
    (scene.folder / name).unlink()


def _stop_while_full(scene: Scene) -> None:
    time.sleep(0.2)
    (scene.folder / FULL).touch()
    scene.victim.stop()
    assert "Traceback" not in scene.log, "it did not stop in order"
    (scene.folder / FULL).unlink()


def _lock(scene: Scene) -> None:
    with closing(sqlite3.connect(scene.store, isolation_level=None)) as other:
        other.execute("PRAGMA busy_timeout=5000")
        other.execute("BEGIN EXCLUSIVE")
        time.sleep(6.5)
        other.execute("ROLLBACK")


def _move(scene: Scene) -> None:
    away = scene.store.rename(scene.folder / "away.db")
    time.sleep(LASTS_S)
    away.rename(scene.store)


def _server(scene: Scene) -> tuple[Postgres, str]:
    assert isinstance(scene.place, PostgresPlace)
    return scene.place.server, scene.place.url


def _cut_again_and_again(scene: Scene) -> None:
    for _ in range(5):
        _cut(scene)
        scene.await_work()


def _cut(scene: Scene) -> None:
    server, url = _server(scene)
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid != pg_backend_pid()",
        url,
    )


def _all_killed(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_traffic(answers=20)
        scene.kill()
        _strike_server(signal.SIGQUIT, 0, scene)
    return scene.account()


def _database_stopped(away_s: float, ground: Ground) -> Tally:
    def strike(scene: Scene) -> None:
        told.append(scene.told)
        _strike_server(signal.SIGINT, away_s, scene)

    told: list[Mapping[int, int]] = []
    tally = _struck(strike, ground)
    assert told[0].keys() == {200, 503}, "senders are to be told to try again"
    return tally


def _strike_server(how: signal.Signals, away_s: float, scene: Scene) -> None:
    server, _ = _server(scene)
    server.stop(how)
    time.sleep(away_s)
    server.start()
