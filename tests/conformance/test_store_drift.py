"""What every work store promises of the drift check."""

from __future__ import annotations

from dataclasses import replace

from ragtrace.drift import AnchorRun, AnchorScore, SeenModel
from ragtrace_collector.store.store import Store
from tests.stores.place import Place

RUN = AnchorRun(
    evaluator_version="v",
    anchors_sha256="a",
    judge="openai:m",
    began_ns=1,
    ended_ns=2,
    anchors=1,
    scores=(AnchorScore(anchor="x", metric="faithfulness", score=0.5, passed=False, supported=True),),
)


def seen(answered: str, fingerprint: str = "", *, at: int = 1, requested: str = "openai:m") -> SeenModel:
    return SeenModel(requested=requested, answered=answered, fingerprint=fingerprint, first_ns=at, last_ns=at)


async def test_runs_survive_a_restart_in_their_order(place: Place) -> None:
    first = await place.open()
    await first.drift.add_run(RUN)
    later = AnchorRun.of_json(RUN.as_json().replace('"began_ns":1', '"began_ns":9'))
    await first.drift.add_run(later)
    await first.aclose()
    second = await place.open()
    assert [run.began_ns for run in await second.drift.runs()] == [1, 9]
    await second.aclose()


async def test_a_run_is_due_when_the_last_one_of_its_version_is_old(store: Store) -> None:
    await store.drift.add_run(replace(RUN, began_ns=10))
    due = [await store.drift.claim("v", now_ns=now_ns, every_ns=5) for now_ns in (14, 15, 6, 5)]
    assert due == [False, True, False, True]
    assert await store.drift.claim("w", now_ns=10, every_ns=5)


async def test_the_first_model_is_no_change_and_another_one_is_a_change_once(store: Store) -> None:
    assert await store.drift.see_models([seen("m-1"), seen("m-1", "fp")]) == ()
    assert await store.drift.see_models([seen("m-2", at=5)]) == (seen("m-2", at=5),)
    assert await store.drift.see_models([seen("m-2", at=6), seen("m-1", at=6)]) == ()
    assert await store.drift.see_models([seen("o", requested="openai:o")]) == ()
    found = [(model.answered, model.first_ns, model.last_ns) for model in await store.drift.seen_models()]
    assert found == [("m-1", 1, 6), ("m-1", 1, 1), ("m-2", 5, 6), ("o", 1, 1)]
