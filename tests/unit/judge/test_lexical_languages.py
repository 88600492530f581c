"""The lexical judge on constructed cases in other languages: it was trained on English answers."""

from __future__ import annotations

import pytest

from ragtrace.model import RagRecord, Verdict, VerdictLabel
from ragtrace.pipeline.evaluation import evaluate

CASES = {
    "German": ("Kunden können gekaufte Schuhe innerhalb von 30 Tagen zurückgeben.", "30", "90"),
    "French": ("Les clients peuvent retourner les chaussures achetées sous 30 jours.", "30", "90"),
    "Spanish": ("Los clientes pueden devolver los zapatos comprados en 30 días.", "30", "90"),
    "Chinese": ("顾客可以在30天内退回已购买的鞋子。", "30", "90"),
    "Japanese": ("お客様は購入した靴を30日以内に返品できます。", "30", "90"),
    "Arabic": ("يمكن للعملاء إعادة الأحذية المشتراة خلال ٣٠ يوما.", "٣٠", "٩٠"),
}


async def verdict_on(claim: str, context: str) -> Verdict:
    [result] = (await evaluate(RagRecord.of(answer=claim, contexts=[context]))).results
    [verdict] = result.verdicts
    return verdict


@pytest.mark.parametrize("language", CASES)
async def test_a_copied_sentence_is_supported_and_a_changed_number_is_not(language: str) -> None:
    context, number, other = CASES[language]
    copied = await verdict_on(context, context)
    changed = await verdict_on(context.replace(number, other), context)
    assert copied.label is VerdictLabel.SUPPORTED
    assert changed.label is VerdictLabel.UNSUPPORTED
    assert copied.support is not None
    assert changed.support is not None
    assert changed.support < copied.support


@pytest.mark.parametrize("language", CASES)
async def test_a_sentence_about_something_else_is_never_supported(language: str) -> None:
    others = [context for other, (context, *_) in CASES.items() if other != language]
    found = await verdict_on(CASES[language][0], "\n\n".join(others))
    assert found.label is not VerdictLabel.SUPPORTED
