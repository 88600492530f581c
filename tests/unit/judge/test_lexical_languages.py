"""The lexical judge on constructed cases in other languages: it was trained on English answers."""

from __future__ import annotations

import unicodedata

import pytest

from ragtrace.model import MetricResult, RagRecord, SkipReason, Verdict, VerdictLabel
from ragtrace.pipeline import evaluate

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


GERMAN = "Die Firma hat 1.250,50 Euro und 3 Autos, und das Büro wird von Frau Keller geleitet."
FRENCH = "Le musée de la ville possède 1 250 tableaux, et l'entrée est gratuite pour les étudiants."
CHINESE = "公司在三十个国家有3万名员工,收入为1,250元。"


@pytest.mark.parametrize(
    ("context", "claim", "label"),
    [
        (GERMAN, "Die Firma hat 1250.50 Euro und 3 Autos.", VerdictLabel.SUPPORTED),
        (GERMAN, "Die Firma hat 1250,5 Euro und drei Autos.", VerdictLabel.SUPPORTED),
        (GERMAN, "Die Firma hat 1.350,50 Euro und 3 Autos.", VerdictLabel.UNSUPPORTED),
        (FRENCH, "Le musée de la ville possède 1250 tableaux.", VerdictLabel.SUPPORTED),
        (FRENCH, "Le musée de la ville possède 1\u202f250 tableaux.", VerdictLabel.SUPPORTED),
        (FRENCH, "Le musée de la ville possède 2 250 tableaux.", VerdictLabel.UNSUPPORTED),
        (CHINESE, "公司在30个国家有30000名员工。", VerdictLabel.SUPPORTED),
        (CHINESE, "公司在三十个国家有３万名员工。", VerdictLabel.SUPPORTED),
        (CHINESE, "公司在三十个国家有5万名员工。", VerdictLabel.UNSUPPORTED),
    ],
)
async def test_numbers_are_compared_by_value_as_the_language_writes_them(
    context: str, claim: str, label: VerdictLabel
) -> None:
    assert (await verdict_on(claim, context)).label is label


@pytest.mark.parametrize(
    ("context", "claim"),
    [
        ("Das Büro der Firma ist nicht in Berlin.", "Das Büro der Firma ist in Berlin."),
        (
            "Les clients ne peuvent pas retourner les chaussures au magasin.",
            "Les clients peuvent retourner les chaussures au magasin.",
        ),
        (
            "Los clientes no pueden devolver los zapatos en la tienda.",
            "Los clientes pueden devolver los zapatos en la tienda.",
        ),
        ("顾客不可以在商店退回鞋子。", "顾客可以在商店退回鞋子。"),
        ("お客様は店で靴を返品できません。", "お客様は店で靴を返品できます。"),
        ("لا يمكن للعملاء إعادة الأحذية إلى المتجر.", "يمكن للعملاء إعادة الأحذية إلى المتجر."),
    ],
)
async def test_a_claim_that_leaves_out_the_negation_is_not_supported(context: str, claim: str) -> None:
    assert (await verdict_on(claim, context)).label is not VerdictLabel.SUPPORTED


@pytest.mark.parametrize(
    ("claim", "context", "of"),
    [
        ("Kunden können die Schuhe innerhalb von 30 Tagen zurückgeben.", "English", "German"),
        ("顾客可以在30天内退回已购买的鞋子。", "English", "Chinese"),
        ("Клиенты могут вернуть обувь в течение 30 дней.", "English", "Cyrillic"),
        ("Customers can return the shoes within 30 days.", "Arabic", "English"),
        ("Customers can return the shoes within 30 days.", "German", "English"),
    ],
)
async def test_a_claim_in_a_language_that_no_chunk_is_in_is_left_open_without_a_probability(
    claim: str, context: str, of: str
) -> None:
    english = "Customers can return purchased shoes within 60 days, and the store in Berlin pays for it."
    evaluation = await evaluate(RagRecord.of(answer=claim, contexts=[CASES.get(context, (english,))[0]]))
    [result] = evaluation.results
    assert result.skip_reason is SkipReason.ALL_UNJUDGED
    assert result.verdicts[0].support is None
    assert f"the claim is in {of}" in (result.verdicts[0].reason or "")
    assert evaluation.suspicion is None


@pytest.mark.parametrize(
    "claim",
    [
        unicodedata.normalize("NFD", "Le café Élysée est ouvert pour les élèves."),
        "\u200fLe café\u200b Élysée est\u2060 ouvert pour les élèves.",
    ],
)
async def test_how_characters_are_composed_makes_no_difference(claim: str) -> None:
    context = "Le café Élysée est ouvert pour les élèves."
    assert (await verdict_on(claim, context)).support == (await verdict_on(context, context)).support


@pytest.mark.parametrize("unit", ["顾客可以退回鞋子", "refunds take long ", "e\u0301", "الكتب ", "x"])
async def test_a_hundred_thousand_characters_without_a_full_stop_are_judged(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    evaluation = await evaluate(
        RagRecord.of(answer="Refunds take 30 days. 顾客可以退回鞋子。", contexts=[text])
    )
    [result] = evaluation.results
    assert isinstance(result, MetricResult)
    assert result.counts.total == 2
