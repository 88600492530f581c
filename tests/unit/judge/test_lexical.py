from __future__ import annotations

import asyncio

import pytest

from ragtrace.judge.lexical import LexicalJudge, claim_kind
from ragtrace.model import Chunk, MetricResult, RagRecord, Verdict, VerdictLabel
from ragtrace.pipeline import evaluate

POLICY = (
    "Customers may return purchased shoes within 30 days. The store in Berlin pays the money back."
    " Gift cards are not refunded."
)
HISTORY = "The museum was founded by Maria Sanchez in 1,887. It holds twelve paintings."
DRINKS = "The plant bottles water with CO2 from the Zürich works."


async def judged(answer: str) -> MetricResult:
    texts = {"policy": POLICY, "history": HISTORY, "drinks": DRINKS}
    chunks = tuple(Chunk(id=name, text=text) for name, text in texts.items())
    record = RagRecord(id="r", question="?", chunks=chunks, answer=answer)
    [result] = (await evaluate(record, judge=LexicalJudge())).results
    return result


async def verdict_on(claim: str) -> Verdict:
    [verdict] = (await judged(claim)).verdicts
    return verdict


async def test_words_that_stand_together_support_a_claim_with_a_verbatim_quote() -> None:
    verdict = await verdict_on("Purchased shoes may be returned by customers within 30 days.")
    assert verdict.label is VerdictLabel.SUPPORTED
    assert verdict.chunk_ids == ("policy",)
    assert verdict.quote == "Customers may return purchased shoes within 30 days."


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ("Customers may return purchased shoes within 60 days.", "60"),
        ("The museum was founded by Karl Huber.", "Karl, Huber"),
        ("The shop gladly exchanges worn boots for newer ones.", "content words"),
    ],
)
async def test_a_number_the_names_or_most_words_missing_is_not_mentioned(claim: str, reason: str) -> None:
    verdict = await verdict_on(claim)
    assert verdict.label is VerdictLabel.UNSUPPORTED
    assert reason in (verdict.reason or "")
    assert verdict.chunk_ids == ()


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ("Gift cards are refunded.", "negates"),
        ("The store in Hamburg pays the money back.", "Hamburg"),
        ("The museum was founded by Maria Huber.", "Huber"),
        ("It holds.", "too few"),
        ("Customers return 1887 purchased shoes.", "words"),
    ],
)
async def test_what_words_cannot_decide_is_unjudged_with_a_reason(claim: str, reason: str) -> None:
    verdict = await verdict_on(claim)
    assert verdict.label is VerdictLabel.UNJUDGED
    assert reason in (verdict.reason or "")


@pytest.mark.parametrize(
    "claim",
    [
        "The museum was founded by Maria Sanchez in 1887.",
        "The museum holds 12 paintings.",
        "Based on the given passages, the museum holds twelve paintings (Passage 2).",
        "Customers may return purchased shoes within 30 days (about 4.3 weeks).",
    ],
)
async def test_numbers_are_compared_by_value(claim: str) -> None:
    assert (await verdict_on(claim)).label is VerdictLabel.SUPPORTED


async def test_a_long_judgment_lets_others_work() -> None:
    turns = 0
    text = " ".join(f"Customers may return purchase {n} within {n} days." for n in range(1000))
    chunks = (Chunk(id="c", text=text),)
    record = RagRecord(id="r", question="?", chunks=chunks, answer="Customers may return purchase 7.")
    evaluation = asyncio.create_task(evaluate(record, judge=LexicalJudge()))
    while not evaluation.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 20


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("Unable to answer based on given passages.", "refusal"),
        ("I'm sorry, but I cannot answer that question.", "refusal"),
        ("Therefore, it is not possible to determine the price based on the provided passages.", "refusal"),
        ("Based on the provided passages, here are the steps:", "meta"),
        ("The passages do not mention the price.", "refusal"),
        ("However, the given context doesn't say when.", "refusal"),
        ("I hope this helps!", "meta"),
        ("Would you like to know more?", "meta"),
        ("(Passage 2)", "meta"),
        ("Paris", "factual"),
        ("**Refund time:** 30 days", "factual"),
        ("| Refunds | 14 days |", "factual"),
        ("Shoes may be returned.", "factual"),
        ("The source of the Nile lies in Burundi.", "factual"),
    ],
)
def test_sentences_that_state_nothing_are_told_apart(sentence: str, kind: str) -> None:
    assert claim_kind(sentence) == kind


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ("customers", ["supported"]),
        ("Rome", ["unsupported"]),
        ("30 days", ["supported"]),
        ("45 days", ["unsupported"]),
        ("- **Return time:** 45 days", ["unsupported"]),
        ("## Returns\n\n| what | time |\n|---|---|\n| Shoes | 30 days |", ["supported"]),
        ("**Shoes**\n- 30 days\n- 45 days", ["supported", "unsupported"]),
        ("Yes", ["unjudged"]),
        ("Wonderful!", ["unjudged"]),
    ],
)
async def test_short_answers_items_and_rows_are_claims_and_headings_are_not(
    answer: str, labels: list[str]
) -> None:
    assert [verdict.label for verdict in (await judged(answer)).verdicts] == labels
