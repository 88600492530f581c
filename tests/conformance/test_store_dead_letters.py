"""What every work store promises of messages that could not be used, run on each adapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragtrace_collector.store.records import DeadLetter
from ragtrace_collector.store.store import Store
from tests.stores.place import Place

LETTER = DeadLetter(topic="otlp_spans", partition=3, offset=7, reason="not_otlp", bytes=11, copied_to="dead")


async def test_a_message_that_comes_again_is_counted_once(store: Store) -> None:
    assert await store.note_dead_letter(LETTER, now_ns=1)
    assert not await store.note_dead_letter(replace(LETTER, reason="empty"), now_ns=2)
    assert await store.dead_letters(10) == (LETTER,)
    assert (await store.ledger()).dead_letters == {"not_otlp": 1}


async def test_sums_outlive_the_rows(store: Store) -> None:
    await store.note_dead_letter(LETTER, now_ns=1)
    await store.note_dead_letter(replace(LETTER, offset=8, reason="empty"), now_ns=5)
    await store.expire(decided_before_ns=0, ended_before_ns=5)
    assert [letter.offset for letter in await store.dead_letters(10)] == [8]
    assert (await store.ledger()).dead_letters == {"empty": 1, "not_otlp": 1}


async def test_a_dead_letter_that_was_noted_survives_a_crash(place: Place, tmp_path: Path) -> None:
    store = await place.open()
    await store.note_dead_letter(LETTER, now_ns=1)
    again = await place.as_of_now(tmp_path / "later").open()
    assert not await again.note_dead_letter(LETTER, now_ns=2)
    assert (await again.ledger()).dead_letters == {"not_otlp": 1}
    await again.aclose()
    await store.aclose()
