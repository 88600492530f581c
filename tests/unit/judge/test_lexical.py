"""The lexical judge: what it decides of claims in English and other languages, and by which model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import unicodedata
from importlib.resources import files

from ragtrace.judge.lexical import LexicalJudge
from ragtrace.judge.phrases import claim_kind
from ragtrace.labeled_data import read_labeled
from ragtrace.model import Chunk, Label, MetricResult, RagRecord, SkipReason, Verdict, VerdictLabel
from ragtrace.pipeline import evaluate
from tests.checkout import ROOT
from tests.train_lexical import read_claims

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


async def test_a_number_the_names_or_most_words_missing_is_not_mentioned() -> None:
    for claim, reason in [
        ("Customers may return purchased shoes within 60 days.", "60"),
        ("The museum was founded by Karl Huber.", "Karl, Huber"),
        ("The shop gladly exchanges worn boots for newer ones.", "content words"),
    ]:
        verdict = await verdict_on(claim)
        assert verdict.label is VerdictLabel.UNSUPPORTED, claim
        assert reason in (verdict.reason or ""), claim
        assert verdict.chunk_ids == (), claim


async def test_what_words_cannot_decide_is_unjudged_with_a_reason() -> None:
    for claim, reason in [
        ("Gift cards are refunded.", "negates"),
        ("The store in Hamburg pays the money back.", "Hamburg"),
        ("The museum was founded by Maria Huber.", "Huber"),
        ("It holds.", "too few"),
        ("Customers return 1887 purchased shoes.", "words"),
    ]:
        verdict = await verdict_on(claim)
        assert verdict.label is VerdictLabel.UNJUDGED, claim
        assert reason in (verdict.reason or ""), claim


async def test_numbers_are_compared_by_value() -> None:
    for claim in [
        "The museum was founded by Maria Sanchez in 1887.",
        "The museum holds 12 paintings.",
        "Based on the given passages, the museum holds twelve paintings (Passage 2).",
        "Customers may return purchased shoes within 30 days (about 4.3 weeks).",
    ]:
        assert (await verdict_on(claim)).label is VerdictLabel.SUPPORTED, claim


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


def test_sentences_that_state_nothing_are_told_apart() -> None:
    for sentence, kind in [
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
    ]:
        assert claim_kind(sentence) == kind, sentence


async def test_short_answers_items_and_rows_are_claims_and_headings_are_not() -> None:
    for answer, labels in [
        ("customers", ["supported"]),
        ("Rome", ["unsupported"]),
        ("30 days", ["supported"]),
        ("45 days", ["unsupported"]),
        ("- **Return time:** 45 days", ["unsupported"]),
        ("## Returns\n\n| what | time |\n|---|---|\n| Shoes | 30 days |", ["supported"]),
        ("**Shoes**\n- 30 days\n- 45 days", ["supported", "unsupported"]),
        ("Yes", ["unjudged"]),
        ("Wonderful!", ["unjudged"]),
    ]:
        assert [verdict.label for verdict in (await judged(answer)).verdicts] == labels, answer


CASES = {
    "German": ("Kunden können gekaufte Schuhe innerhalb von 30 Tagen zurückgeben.", "30", "90"),
    "French": ("Les clients peuvent retourner les chaussures achetées sous 30 jours.", "30", "90"),
    "Spanish": ("Los clientes pueden devolver los zapatos comprados en 30 días.", "30", "90"),
    "Chinese": ("顾客可以在30天内退回已购买的鞋子。", "30", "90"),
    "Japanese": ("お客様は購入した靴を30日以内に返品できます。", "30", "90"),
    "Arabic": ("يمكن للعملاء إعادة الأحذية المشتراة خلال ٣٠ يوما.", "٣٠", "٩٠"),
}


async def verdict_by(claim: str, context: str) -> Verdict:
    [result] = (await evaluate(RagRecord.of(answer=claim, contexts=[context]))).results
    [verdict] = result.verdicts
    return verdict


async def test_a_copied_sentence_is_supported_and_a_changed_number_is_not() -> None:
    for language in CASES:
        context, number, other = CASES[language]
        copied = await verdict_by(context, context)
        changed = await verdict_by(context.replace(number, other), context)
        assert copied.label is VerdictLabel.SUPPORTED, language
        assert changed.label is VerdictLabel.UNSUPPORTED, language
        assert changed.support < copied.support, language


GERMAN = "Die Firma hat 1.250,50 Euro und 3 Autos, und das Büro wird von Frau Keller geleitet."
FRENCH = "Le musée de la ville possède 1 250 tableaux, et l'entrée est gratuite pour les étudiants."
CHINESE = "公司在三十个国家有3万名员工,收入为1,250元。"


async def test_numbers_are_compared_by_value_as_the_language_writes_them() -> None:
    for context, claim, label in [
        (GERMAN, "Die Firma hat 1250.50 Euro und 3 Autos.", VerdictLabel.SUPPORTED),
        (GERMAN, "Die Firma hat 1250,5 Euro und drei Autos.", VerdictLabel.SUPPORTED),
        (GERMAN, "Die Firma hat 1.350,50 Euro und 3 Autos.", VerdictLabel.UNSUPPORTED),
        (FRENCH, "Le musée de la ville possède 1250 tableaux.", VerdictLabel.SUPPORTED),
        (FRENCH, "Le musée de la ville possède 1\u202f250 tableaux.", VerdictLabel.SUPPORTED),
        (FRENCH, "Le musée de la ville possède 2 250 tableaux.", VerdictLabel.UNSUPPORTED),
        (CHINESE, "公司在30个国家有30000名员工。", VerdictLabel.SUPPORTED),
        (CHINESE, "公司在三十个国家有３万名员工。", VerdictLabel.SUPPORTED),
        (CHINESE, "公司在三十个国家有5万名员工。", VerdictLabel.UNSUPPORTED),
    ]:
        assert (await verdict_by(claim, context)).label is label, context


async def test_a_claim_that_leaves_out_the_negation_is_not_supported() -> None:
    for context, claim in [
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
    ]:
        assert (await verdict_by(claim, context)).label is not VerdictLabel.SUPPORTED, context


async def test_a_claim_in_a_language_that_no_chunk_is_in_is_left_open_without_a_probability() -> None:
    for claim, context, of in [
        ("Kunden können die Schuhe innerhalb von 30 Tagen zurückgeben.", "English", "German"),
        ("顾客可以在30天内退回已购买的鞋子。", "English", "Chinese"),
        ("Клиенты могут вернуть обувь в течение 30 дней.", "English", "Cyrillic"),
        ("Customers can return the shoes within 30 days.", "Arabic", "English"),
        ("Customers can return the shoes within 30 days.", "German", "English"),
    ]:
        english = "Customers can return purchased shoes within 60 days, and the store in Berlin pays for it."
        evaluation = await evaluate(RagRecord.of(answer=claim, contexts=[CASES.get(context, (english,))[0]]))
        [result] = evaluation.results
        assert result.skip_reason is SkipReason.ALL_UNJUDGED, claim
        assert result.verdicts[0].support is None, claim
        assert f"the claim is in {of}" in (result.verdicts[0].reason or ""), claim
        assert evaluation.suspicion is None, claim


async def test_how_characters_are_composed_makes_no_difference() -> None:
    for claim in [
        unicodedata.normalize("NFD", "Le café Élysée est ouvert pour les élèves."),
        "\u200fLe café\u200b Élysée est\u2060 ouvert pour les élèves.",
    ]:
        context = "Le café Élysée est ouvert pour les élèves."
        assert (await verdict_by(claim, context)).support == (await verdict_by(context, context)).support


SAMPLE = ROOT / "examples" / "data" / "ragtruth_qa_sample.jsonl"
SAID = json.loads(files("ragtrace.judge").joinpath("support_model.json").read_text())


async def test_a_doubtful_answer_is_more_suspicious_than_a_copied_one() -> None:
    said = "Customers may return purchased shoes within 30 days."
    answers = (said, f"{said} Gift cards last 99 years.")
    copied, invented = [
        (await evaluate(RagRecord.of(answer=answer, contexts=[POLICY]))).suspicion for answer in answers
    ]
    assert copied is not None
    assert invented is not None
    assert 0 < copied < 0.2 < 0.5 < invented < 1


async def test_no_answer_passes_of_which_less_than_half_is_decided() -> None:
    labels = []
    for answer in read_labeled(SAMPLE):
        [result] = (await evaluate(answer.record)).results
        labels.append(result.label)
        if result.counts.judged * 2 < result.counts.total and not result.counts.unsupported:
            assert result.skip_reason in (SkipReason.UNDECIDED, SkipReason.ALL_UNJUDGED)
    assert {Label.PASS, Label.FAIL, Label.SKIPPED} == set(labels)


def test_the_shipped_cuts_are_as_precise_as_promised_out_of_fold() -> None:
    for file in SAID["out_of_fold"]:
        found = SAID["out_of_fold"][file]
        assert found["caught"] / found["flagged"] >= 0.5, file
        assert found["passed_rightly"] / found["passed"] >= 0.97, file
        assert found["decided"] == found["flagged"] + found["passed"], file


DIGEST = "58b07a60f41c918c6edac1d6e6f5c9bfb3e5b6e8739c69370f9897d4c00b5561"
"""Of ``lexical-v4``. If it changes, train and measure the model again: its card is about other features."""


def test_english_features_are_those_of_the_trained_model() -> None:
    claims = read_claims(SAMPLE)
    features = [{name: f"{value:.9f}" for name, value in sorted(claim.features.items())} for claim in claims]
    found = json.dumps([features, [claim.may_be_supported for claim in claims]])
    assert len(claims) > 100
    assert hashlib.sha256(found.encode()).hexdigest() == DIGEST
