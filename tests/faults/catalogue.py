"""The faults: what is done to a collector while answers come in, and what it must come through unharmed."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

from ragtrace_collector.store.open import send_again
from tests.acceptance.judge_server import JudgeServer
from tests.backends.postgres_server import Postgres
from tests.backends.process import eventually
from tests.faults.disk import Blow, Kind, Weather
from tests.faults.held import HeldScene
from tests.faults.scene import Ground, Scene, Tally
from tests.faults.servers import BackEnd, Mood, MoodyJudge, MoodyServer, closing_all
from tests.faults.table import Fault, Grounds, Made, Try
from tests.stores.place import PostgresPlace

Engine: TypeAlias = Literal["SQLite", "PostgreSQL"]
ENGINES: Final[Sequence[Engine]] = ("SQLite", "PostgreSQL")

LASTS_S: Final = 1.5
_HOUR_S: Final = 3600
_SHARE_AT_START: Final = 0.25
_SHARE_AT_WORK: Final = 0.7
_REPLIES: Final[Mapping[str, Any]] = {
    "extract": {
        "claims": [
            {
                "id": 1,
                "sentence_ids": [1],
                "text": "Refunds take 14 days.",
                "kind": "factual",
                "relevance": "direct",
            }
        ],
        "refusal": False,
    },
    "verify": {
        "verdicts": [
            {
                "id": 1,
                "chunks": [1],
                "quote": "Refunds take 14 days.",
                "label": "supported",
                "reason": "Stated.",
            }
        ]
    },
}


def catalogue(engine: Engine, *, kills: int, every: int, times: int, away_s: float) -> Mapping[str, Made]:
    """Return all faults by their names.

    Args:
        engine: What keeps the store.
        kills: How often a collector is killed at a random moment.
        every: Each how-manieth statement is one to fail at; 1 is every one.
        times: How often a fault is tried that has no moments to choose from.
        away_s: How long a server's database is away.
    """
    ready = (*_kills(kills // 4), *_tried_as_often(times), *_OF_ENGINE[engine](times, away_s))
    counted = {name: partial(_at_statements, name, every) for name in _STATEMENTS[engine]}
    return counted | {fault.name: lambda _, fault=fault: fault for fault in ready}


def _kills(times: int) -> Iterator[Fault]:
    where: Mapping[str, Callable[[int, Ground], Tally]] = {
        "file": _killed_twice,
        "back end, slow judge": _killed_twice_while_judging,
        "hold mode": _killed_twice_while_holding,
    }
    for name, kill in where.items():
        tries = [partial(kill, seed) for seed in range(times)]
        yield Fault(name=f"killed at a random moment ({name})", tries=tries)


def _tried_as_often(times: int) -> Iterator[Fault]:
    moods: Mapping[str, Try] = {
        **{f"back end {mood}": partial(_back_end_is, mood) for mood in _BACK_END_MOODS},
        **{f"judge {mood}": partial(_judge_is, mood) for mood in _JUDGE_MOODS},
    }
    clocks: Mapping[str, Try] = {
        "clock set back an hour": _clock_set_back,
        "clock set back an hour over a restart": _clock_set_back_over_restart,
    }
    for name, one in {**clocks, **moods}.items():
        yield Fault(name=name, tries=[one] * times)


def _of_sqlite(times: int, _: float) -> Iterator[Fault]:
    others: Mapping[str, Try] = {
        "no file may grow any more, for a while": _files_cannot_grow,
        "disk full for a while": partial(_weather, Weather.FULL),
        "disk read-only for a while": partial(_weather, Weather.READ_ONLY),
        "stopped in order while the disk is full": _stopped_while_full,
        "another program locks the store for longer than is waited": _locked,
        "the store's file is moved away, and back": _moved,
        "a second collector on the same store": _second_collector,
        "a store of a newer version": _newer,
    }
    for name, one in others.items():
        yield Fault(name=name, tries=[one] * times)
    yield Fault(
        name="a damaged page; the backup made meanwhile is restored",
        tries=[partial(_damaged, seed) for seed in range(8 * times)],
    )


def _of_postgres(times: int, away_s: float) -> Iterator[Fault]:
    yield Fault(name="all connections are cut, again and again", tries=[_cut] * times)
    yield Fault(name="a database that may only be read, for a while", tries=[_read_only] * times)
    of_server: Mapping[str, Try] = {
        "the database is killed, and recovers": _database_killed,
        "the power of all fails": _all_killed,
        f"the database is stopped for {away_s:g} s": partial(_database_stopped, away_s),
    }
    for name, one in of_server.items():
        yield Fault(name=name, tries=[one] * times, is_for_all=True)
    name = "the disk of the database is full, for a while"
    if os.geteuid():
        yield Fault(name=name, tries=(), not_tried="only root can mount a small one")
    else:
        yield Fault(name=name, tries=[_database_full] * times)


_OF_ENGINE: Final[Mapping[Engine, Callable[[int, float], Iterator[Fault]]]] = {
    "SQLite": _of_sqlite,
    "PostgreSQL": _of_postgres,
}


_BACK_END_MOODS: Final = (
    Mood.AWAY,
    Mood.BUSY,
    Mood.THROTTLES,
    Mood.BROKEN,
    Mood.LOCKED,
    Mood.HANGS,
    Mood.CUTS,
)
_JUDGE_MOODS: Final = (Mood.AWAY, Mood.BUSY, Mood.THROTTLES, Mood.HANGS, Mood.CUTS, Mood.GARBAGE)


def _killed_twice(seed: int, ground: Ground) -> Tally:
    return _kill_twice(Scene(ground), Random(seed))


def _killed_twice_while_judging(seed: int, ground: Ground) -> Tally:
    judge, back_end = MoodyJudge(JudgeServer(_REPLIES), delay_s=0.05), BackEnd()
    with closing_all(judge, back_end):
        return _kill_twice(Scene(ground, back_end=back_end, changes=_asking(judge)), Random(seed))


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


def _at_statements(name: str, every: int, grounds: Grounds) -> Fault:
    kind, scene_of = {**_STATEMENTS["SQLite"], **_STATEMENTS["PostgreSQL"]}[name]
    number = _statements(scene_of, grounds)
    tries = [
        partial(_struck, Blow(kind=kind, at=at), scene_of=scene_of) for at in range(1, number + 1, every)
    ]
    return Fault(name=f"{name}, n = 1, {1 + every} … {number}", tries=tries)


def _statements(scene_of: Callable[[Ground], Scene], grounds: Grounds) -> int:
    with TemporaryDirectory(prefix="ragtrace-faults-") as folder:
        scene = scene_of(grounds(Path(folder)))
        scene.start()
        scene.send(2)
        scene.await_carriers()
        number = int((scene.folder / "statements").read_text())
        scene.stop()
    return number


def _struck(blow: Blow, ground: Ground, *, scene_of: Callable[[Ground], Scene] = Scene) -> Tally:
    scene = scene_of(ground)
    scene.start(blow)
    scene.send(2)
    return scene.account()


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


def _files_cannot_grow(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        process = scene.victim.process.pid
        assert process is not None
        _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (100_000, most))
        time.sleep(LASTS_S)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, most))
    return scene.account()


def _weather(name: str, ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        scene.weather.set(name)
        time.sleep(LASTS_S)
        scene.weather.clear(name)
    return scene.account()


def _stopped_while_full(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        time.sleep(0.2)
        scene.weather.set(Weather.FULL)
        scene.victim.stop()
        assert "Traceback" not in scene.log, "it did not stop in order"
        scene.weather.clear(Weather.FULL)
    return scene.account()


def _locked(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        with closing(sqlite3.connect(scene.store, isolation_level=None)) as other:
            other.execute("PRAGMA busy_timeout=5000")
            other.execute("BEGIN EXCLUSIVE")
            time.sleep(6.5)
            other.execute("ROLLBACK")
    return scene.account()


def _moved(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        away = scene.store.rename(scene.folder / "away.db")
        time.sleep(LASTS_S)
        away.rename(scene.store)
    return scene.account()


def _second_collector(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        says(scene.refusal(), "in use by another collector")
    return scene.account()


def _newer(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    scene.send(2)
    scene.stop()
    with _store(scene) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version={version + 1}")
    before = scene.store.read_bytes()
    says(scene.refusal(), "another ragtrace")
    assert scene.store.read_bytes() == before, "a file that was refused was changed"
    with _store(scene) as db:
        db.execute(f"PRAGMA user_version={version}")
    scene.send(2)
    return scene.account()


def _damaged(seed: int, ground: Ground) -> Tally:
    scene = Scene(ground, changes={"judge": {"max_concurrency": 1}})
    scene.start()
    with scene.traffic():
        scene.await_work()
        time.sleep(0.2)
    backup = scene.folder / "backup.db"
    with closing(sqlite3.connect(scene.store)) as db:
        db.execute("VACUUM INTO ?", (str(backup),))
    scene.stop()
    damage_a_page(scene.store, Random(seed))
    if refusal := scene.refusal():  # there is none where the page held nothing: that does no harm
        says(refusal, "restore a backup")
        for companion in scene.store.parent.glob(f"{scene.store.name}-*"):
            companion.unlink()
        shutil.move(backup, scene.store)
    scene.send(2)
    return scene.account()


def damage_a_page(file: Path, random: Random) -> None:
    page = random.randrange(file.stat().st_size // 4096)
    with file.open("r+b") as writable:
        writable.seek(page * 4096)
        writable.write(random.randbytes(4096))


def _cut(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        for _ in range(5):
            scene.await_work()
            _cut_connections(ground)
    return scene.account()


def _cut_connections(ground: Ground) -> None:
    server, url = _server(ground)
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid != pg_backend_pid()",
        url,
    )


def _server(ground: Ground) -> tuple[Postgres, str]:
    assert isinstance(ground.place, PostgresPlace)
    return ground.place.server, ground.place.url


def _read_only(ground: Ground) -> Tally:
    server, url = _server(ground)
    setting = f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only"
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        for is_read_only in (True, False):
            server.execute(f"{setting} = {is_read_only}")
            _cut_connections(ground)
            time.sleep(LASTS_S)
    return scene.account()


def _database_killed(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        _strike_server(ground, signal.SIGQUIT, LASTS_S)
    return scene.account()


def _all_killed(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_traffic(answers=20)
        scene.kill()
        _strike_server(ground, signal.SIGQUIT, 0)
    return scene.account()


def _database_stopped(away_s: float, ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        _strike_server(ground, signal.SIGINT, away_s)
    assert scene.told.keys() == {200, 503}, "senders are to be told to try again"
    return scene.account()


def _strike_server(ground: Ground, how: signal.Signals, away_s: float) -> None:
    server, _ = _server(ground)
    server.stop(how)
    time.sleep(away_s)
    server.start()


def _database_full(ground: Ground) -> Tally:
    """Keep the tables on a disk of their own, and fill it."""
    server, url = _server(ground)
    name = url.rpartition("/")[2]
    disk = server.log.parent / f"disk_{name}"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=True)
    try:
        tables = disk / "tables"
        tables.mkdir()
        shutil.chown(tables, "postgres")
        server.execute(f"CREATE TABLESPACE {name} LOCATION '{tables}'")
        server.execute(f"ALTER DATABASE {name} SET TABLESPACE {name}")
        scene = Scene(ground)
        scene.start()
        with scene.traffic():
            scene.await_work()
            filling = disk / "filling"
            with suppress(OSError), filling.open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
            eventually(lambda: scene.told[503], what="a sender that is told to try again")
            filling.unlink()
        tally = scene.account()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        server.execute(f"DROP TABLESPACE {name}")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    return tally


def _clock_set_back(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        time.sleep(0.2)
        scene.clock_is_off_by(-_HOUR_S)
        time.sleep(0.5)
    return scene.account()


def _clock_set_back_over_restart(ground: Ground) -> Tally:
    scene = Scene(ground)
    scene.start()
    with scene.traffic():
        scene.await_work()
        time.sleep(0.2)
        scene.kill()
        scene.clock_is_off_by(-_HOUR_S)
        scene.revive()
        time.sleep(0.5)
    return scene.account()


def _back_end_is(mood: Mood, ground: Ground) -> Tally:
    back_end = BackEnd()
    with closing_all(back_end):
        scene = Scene(ground, back_end=back_end)
        scene.start()
        with scene.traffic():
            scene.await_work()
            _strike(back_end, mood)
        if mood is Mood.BROKEN:  # OTLP forbids to try again by itself, so a person does
            time.sleep(1)
            asyncio.run(send_again(scene.place.database))
        return scene.account()


def _judge_is(mood: Mood, ground: Ground) -> Tally:
    judge = MoodyJudge(JudgeServer(_REPLIES))
    with closing_all(judge):
        scene = Scene(ground, changes=_asking(judge))
        scene.start()
        with scene.traffic():
            scene.await_work()
            _strike(judge, mood)
        return scene.account()


def _strike(server: MoodyServer, mood: Mood) -> None:
    server.set(mood)
    time.sleep(LASTS_S)
    server.set(Mood.WELL)


def _asking(judge: MoodyJudge) -> Mapping[str, Mapping[str, Any]]:
    """Return the configuration of a collector that asks this judge."""
    return {
        "judge": {
            "use": "openai:rule",
            "base_url": f"http://127.0.0.1:{judge.port}/v1",
            "api_key_env": "JUDGE_KEY",
            "timeout": "1s",
            "max_concurrency": 8,
            "sentinel_rate": 0,
        },
        "evaluate": {"retry_delays": ["1s"] * 30},
    }


@contextmanager
def _store(scene: Scene) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(scene.store)) as db, db:
        yield db


def says(refusal: str, what: str) -> None:
    assert what in refusal, f"it should say {what!r}: {refusal!r}"
