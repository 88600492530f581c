"""Answers judged without a language model, at the command: refusals, forms of numbers, marks of sources."""

# ruff: noqa: RUF001  the languages have their own letters

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.cli.program import run

REFUSALS = [
    *("There is nothing in the context about that.", "I'd need more details to help with that."),
    *(
        "Îmi pare rău, dar contextul nu conține această informație.",
        "Στο κείμενο δεν υπάρχει αυτή η πληροφορία.",
    ),
    *("Sajnos a megadott szövegben nincs erre vonatkozó információ.", "В контекста няма такава информация."),
    *("Nažalost, dokumenti ne sadrže taj podatak.", "Ho sento, el context no conté aquesta informació."),
    *("Samahani, sina habari hiyo.", "Paumanhin, walang impormasyon tungkol dito."),
    *("متأسفم، این اطلاعات در متن موجود نیست.", "معذرت، اس بارے میں کوئی معلومات نہیں ہے۔"),
    *("দুঃখিত, প্রদত্ত তথ্যে এর উত্তর নেই।", "மன்னிக்கவும், கொடுக்கப்பட்ட தகவலில் பதில் இல்லை."),
    *("Das kann ich anhand der Unterlagen leider nicht sagen.", "Dazu liegen mir keine Angaben vor."),
    *("Désolé, les documents ne mentionnent pas ce point.", "Je ne dispose pas de cette information."),
    *("No dispongo de esa información.", "Los documentos no mencionan los gastos de envío."),
    *("Non sono in grado di rispondere.", "Nei documenti non ho trovato nulla al riguardo."),
    *("Não encontrei nada sobre isso nos documentos.", "Não sei responder."),
    *("Ik kan dat niet vinden in de documenten.", "De context bevat hierover geen informatie."),
    *("Nie mogę odpowiedzieć na to pytanie.", "Dokumenty nie zawierają takich informacji."),
    *("К сожалению, в документах об этом ничего не сказано.", "У меня нет такой информации."),
    *("申し訳ありませんが、その情報は見つかりませんでした。", "お答えできません。"),
    *("抱歉，文档中没有相关信息。", "我无法确定。"),
    *("죄송하지만 알 수 없습니다.", "문서에서 해당 정보를 찾을 수 없습니다."),
    *("لا توجد معلومات حول ذلك في السياق.", "لا أستطيع الإجابة."),
    *("Bu konuda bilgim yok.", "Belgelerde bu bilgi yer almıyor."),
    *("Det framgår inte av dokumenten.", "Jeg ved det ikke.", "En tiedä.", "Bohužel nevím."),
    *(
        "मुझे इसकी जानकारी नहीं है।",
        "Tôi không biết.",
        "Saya tidak tahu.",
        "Nu știu.",
        "Nem tudom.",
        "Δεν γνωρίζω.",
    ),
    *("I'm afraid the sources say nothing about it. Please contact our support.", "Unknown.", "N/A"),
]
RIGHT = [
    ("The plate is 2,75 mm thick.", "The plate is 2.75 mm thick."),
    ("The house cost 1’250’000 francs.", "The house cost 1250000 francs."),
    ("The fund has Rs 3,45,00,000 in its account.", "The fund has Rs 34500000 in its account."),
    ("The museum opens at 14:30 on Sundays.", "The museum opens at 2:30 pm on Sundays."),
    ("Add ¾ litre of warm milk.", "Add 0.75 litre of warm milk."),
    ("The warranty lasts 3 weeks from delivery.", "The warranty lasts 21 days from delivery."),
    ("Sales rose to 3.2 billion dollars last year.", "Sales rose to $3,200,000,000 last year."),
    ("The bag weighs 0.5 kg when it is empty.", "The bag weighs 500 g when it is empty."),
]
WRONG = [
    ("The lab is kept at -8 °C during the night.", "The lab is kept at 8 °C during the night."),
    ("The lab is kept at 8 °C during the night.", "The lab is kept at -8 °C during the night."),
    ("The plate is 2,75 mm thick.", "The plate is 275 mm thick."),
    ("The museum opens at 14:30 on Sundays.", "The museum opens at 2:30 am on Sundays."),
    ("The tunnel is 7 km long in all.", "The tunnel is 7 m long in all."),
    ("Sales rose to 3.2 billion dollars last year.", "Sales rose to 3.2 million dollars last year."),
]
FACT = "Orders are shipped within four working days of payment."
MARKED = [
    *(
        "[7]",
        "[2][9]",
        "[1, 4-6]",
        "【12:3†terms.pdf】",
        "(Jones et al., 2021)",
        "(Source: terms.pdf, p. 31)",
        "(S. 44)",
    ),
    *(
        "[terms](https://shop.example/t/8812)",
        "https://shop.example/t/8812",
        "[^5]",
        "<sup>6</sup>",
        "(Quelle: AGB, Seite 8)",
    ),
]


def judged(folder: Path, pairs: list[tuple[str, str]]) -> list[str]:
    """Return how each answer ends against its chunk: ``pass``, ``fail``, or why it has no score."""
    rows = [{"question": "?", "contexts": [chunk], "answer": answer} for chunk, answer in pairs]
    file = folder / "records.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    said = run("evaluate", str(file), "--judge", "lexical", "--json").output
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(lines) == len(pairs)
    return [line["skip_reason"] or line["label"] for line in lines]


def test_a_refusal_in_any_of_many_languages_has_no_score(tmp_path: Path) -> None:
    ends = judged(tmp_path, [(FACT, refusal) for refusal in REFUSALS])
    assert [said for said, end in zip(REFUSALS, ends, strict=True) if end != "refusal"] == []


def test_what_answers_beside_a_refusal_is_judged(tmp_path: Path) -> None:
    answers = [
        f"I am not sure, but {FACT.lower().replace('four', '9')}",
        f"{FACT} I have no information about returns.",
    ]
    assert judged(tmp_path, [(FACT, answer) for answer in answers]) == ["fail", "pass"]


def test_a_number_in_another_form_is_the_same(tmp_path: Path) -> None:
    ends = judged(tmp_path, RIGHT)
    assert [pair for pair, end in zip(RIGHT, ends, strict=True) if end == "fail"] == []
    assert ends.count("pass") >= len(RIGHT) // 2


def test_another_number_never_passes(tmp_path: Path) -> None:
    ends = judged(tmp_path, WRONG)
    assert [pair for pair, end in zip(WRONG, ends, strict=True) if end == "pass"] == []


def test_marks_of_sources_and_numbers_of_steps_are_no_facts(tmp_path: Path) -> None:
    first = "Step 1: "
    answers = [f"{first}{FACT.rstrip('.')} {mark}." for mark in MARKED]
    ends = judged(tmp_path, [(FACT, answer) for answer in answers])
    assert [answer for answer, end in zip(answers, ends, strict=True) if end != "pass"] == []


def test_thoughts_and_json_around_an_answer_are_no_claims(tmp_path: Path) -> None:
    wrapped = [f"<think>Was it 9 days? No.</think>{FACT}", json.dumps({"answer": FACT, "confidence": 0.87})]
    assert judged(tmp_path, [(FACT, answer) for answer in wrapped]) == ["pass", "pass"]
