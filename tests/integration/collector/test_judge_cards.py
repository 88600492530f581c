"""A collector says what was measured of its judge, and labels by none that it must not believe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.errors import ConfigError
from ragtrace.metrics.judge_card import CardFigure, CardSet, JudgeCard
from ragtrace.traces.trace import Span
from ragtrace_collector.service.check import check_config
from tests.integration.collector.answer_pages import (
    ANSWER,
    CHUNKS,
    PATH,
    QUESTION,
    JudgedTrace,
    answer_client,
    site_of_answers,
)
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.rag_spans import rag_trace

VERDICT = {"label": "contradicted", "chunks": [1], "quote": CHUNKS[0], "reason": "14, not 30"}


def a_card(
    path: Path,
    *,
    auc: float = 0.8,
    contradicted: float = 0.9,
    provider: str = "scripted",
    model: str = "scripted",
) -> str:
    measured = CardSet(
        name="mine.jsonl",
        digest="ab" * 8,
        auc=CardFigure(value=auc),
        floor_auc=CardFigure(value=0.7),
        contradicted_precision=CardFigure(value=contradicted),
    )
    JudgeCard(provider=provider, model=model, date="2026-11-25", sets=[measured]).write(path)
    return str(path)


async def carrier_of(folder: Path, **judge: Any) -> Span:
    """Send one answer with a wrong claim, and return what is said of it."""
    (folder / "judge.json").write_text(json.dumps({"claims": {"Refunds take 30 days.": VERDICT}}))
    config = config_of(folder, judge={"use": f"scripted:{folder / 'judge.json'}", **judge})
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0, question=QUESTION, chunks=CHUNKS, answer=ANSWER)))
        (carrier,) = await until(lambda: carriers_in(folder / "out.jsonl"))
    return carrier


@pytest.mark.parametrize(
    ("auc", "state", "said"),
    [
        (None, "none", "(no card: nobody measured it)"),
        (0.6, "below_floor", "(by its card no better than shared words)"),
        (0.8, "measured", None),
    ],
)
async def test_the_carrier_and_the_page_say_whether_the_judge_was_measured(
    tmp_path: Path, auc: float | None, state: str, said: str | None
) -> None:
    cards = {} if auc is None else {"card": a_card(tmp_path / "card.json", auc=auc)}
    carrier = await carrier_of(tmp_path, **cards)
    assert carrier.attributes[semconv.JUDGE_CARD] == state
    page = answer_client(site_of_answers(JudgedTrace(carriers=(carrier,)).opened())).get(PATH).text
    assert [words in page for words in ("no card: nobody", "no better than shared words")] == [
        said is not None and words in said for words in ("no card: nobody", "no better than shared words")
    ]


@pytest.mark.parametrize(("precision", "label"), [(0.4, "unsupported"), (0.8, "contradicted")])
async def test_a_contradicted_that_is_mostly_wrong_is_folded_into_unsupported(
    tmp_path: Path, precision: float, label: str
) -> None:
    carrier = await carrier_of(tmp_path, card=a_card(tmp_path / "card.json", contradicted=precision))
    named = [event.name.removeprefix(semconv.CLAIM_EVENT_PREFIX) for event in carrier.events]
    assert label in named
    assert ("contradicted" in named) == (label == "contradicted")
    assert carrier.events[named.index(label)].attributes[semconv.CLAIM_QUOTE] == CHUNKS[0]


@pytest.mark.parametrize("role", [None, "second"])
def test_no_judge_without_a_card_labels_anything_if_cards_are_required(
    tmp_path: Path, role: str | None
) -> None:
    required: dict[str, Any] = {"use": "openai:first", "api_key": "k", "require_card": True}
    if role is not None:
        required[role] = "openai:other"
    first, other = (
        a_card(tmp_path / f"{model}.json", provider="openai", model=model) for model in ("first", "other")
    )
    with pytest.raises(ConfigError, match=r"`require_card` refuses the judge openai:.* has no card"):
        check_config(config_of(tmp_path, judge={**required, "card": [first] if role else []}))
    check_config(config_of(tmp_path, judge={**required, "card": [first, other]}))
