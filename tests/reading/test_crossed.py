"""Each thing that may be in a span, in the spans of each producer; passages as pages have them, in each template."""

from __future__ import annotations

import json
import re
from itertools import islice, product
from pathlib import Path

import pytest

from ragtrace.traces.otlp import encode_json
from tests.integration.cli.program import run
from tests.reading.cases import grade, read
from tests.reading.crossing import crossed
from tests.reading.kinds import Node, chat, parts, spans_of

# fmt: off
Q = "Can I take my bike on the night ferry?"
LAST = "Mopeds and motorbikes count as vehicles and pay by length."
PASSAGES = {
    "paragraphs": "Bicycles travel free of charge on all ferries.\n\nFor the night ferry, book a space by noon of the day of travel.",
    "headings": "# Bicycles\n\nBicycles travel free.\n\n## Night ferry\n\nBook a space by noon of the day of travel.",
    "short questions": "Q: Can I take my bike on board?\nA: Yes, bicycles travel free.\n\nQ: Do I need to book?\nA: Only on the night ferry, by noon.",
    "a question": "Question: Can I take my bike on board?\nAnswer: Yes, bicycles travel free. On the night ferry you have to book by noon.",
    "a list": "How to take a bike on the night ferry:\n\n1. Book a space by noon.\n2. Be at the pier 30 minutes before.\n3. Follow the crew.",
    "code": "Book a space with our API:\n\n```json\n{\"kind\": \"bike\", \"ferry\": \"night\"}\n```\n\nBicycles travel free of charge.",
    "a table": "Prices of the night ferry:\n\n| What | Price |\n|---|---|\n| bicycle, booked by noon | free |\n| moped | 18 euros |",
    "a rule": "Bicycles travel free.\n\n---\n\nOn the night ferry, book a space by noon.",
    "fields": "Title: Bicycles\nValid from: 2026-01-01\nText: Bicycles travel free. On the night ferry, book by noon.",
    "references": "Bicycles travel free [1]. On the night ferry a space is booked by noon [2].\n\n[1] Tariff 2026\n[2] Rules of carriage",
    "orders": "If you want to take a bike, you must book by noon.\n\nPlease use the bicycle racks. Do not use the car deck.",
    "notes": "Note: bicycles travel free.\nImportant: on the night ferry, book by noon.\nContact: office@ferry.example",
}
TEMPLATES = {
    "stuff": ("", "Use the following pieces of context to answer the question at the end. If you don't know the answer, just say that you don't know.\n\n%1\n\n%2\n\nQuestion: %q\nHelpful Answer:"),
    "stuff chat": ("Use the following pieces of context to answer the user's question. \nIf you don't know the answer, just say that you don't know.\n----------------\n%1\n\n%2", "%q"),
    "between lines": ("", "Context information is below.\n---------------------\n%1\n\n%2\n---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery: %q\nAnswer: "),
    "tags": ("Answer from the documents.\n<documents>\n<document>\n%1\n</document>\n<document>\n%2\n</document>\n</documents>", "%q"),
    "one tag": ("", "Answer the question based on the context.\n<context>\n%1\n\n%2\n</context>\n\nQuestion: %q"),
    "numbered": ("", "Answer using only these documents.\n\nDocument 1:\n%1\n\nDocument 2:\n%2\n\nQuestion: %q"),
    "brackets": ("Answer with citations from these sources.\n\n[1] %1\n\n[2] %2", "%q"),
    "headings": ("", "## Context\n\n%1\n\n%2\n\n## Question\n\n%q\n\n## Instructions\n\nAnswer from the context only."),
    "a line between": ("Answer from the context.\n\nContext:\n%1\n\n---\n\n%2", "%q"),
    "documents": ("", "Given the following documents, answer the question.\n\nDocuments:\n    %1\n    %2\n\nQuestion: %q\nAnswer:"),
    "German": ("Beantworte die Frage nur mit dem Kontext.\n\nKontext:\n%1\n\n%2", "%q"),
    "the question first": ("", "Question: %q\n\nContext:\n%1\n\n%2\n\nAnswer:"),
}
LANGUAGES = {
    "Danish": ("Svar kun ud fra dokumenterne.", "Dokument", "Spørgsmål", "Må jeg tage min cykel med på natfærgen?", "Cykler sejler gratis på alle færger.\nPå natfærgen skal pladsen reserveres inden middag.", "Knallerter regnes som køretøjer."),
    "Finnish": ("Vastaa vain asiakirjojen perusteella.", "Asiakirja", "Kysymys", "Voinko ottaa polkupyörän yölautalle?", "Polkupyörät kulkevat ilmaiseksi kaikilla lautoilla.\nYölautalle paikka varataan ennen puoltapäivää.", "Mopot lasketaan ajoneuvoiksi."),
    "Indonesian": ("Jawab hanya berdasarkan dokumen.", "Dokumen", "Pertanyaan", "Bolehkah saya membawa sepeda ke feri malam?", "Sepeda diangkut gratis di semua feri.\nUntuk feri malam, pesan tempat sebelum siang.", "Motor dihitung sebagai kendaraan."),
    "Hungarian": ("Csak a dokumentumok alapján válaszolj.", "Dokumentum", "Kérdés", "Vihetem a biciklimet az éjszakai kompra?", "A biciklik ingyen utaznak minden kompon.\nAz éjszakai kompra délig kell helyet foglalni.", "A mopedek járműnek számítanak."),
    "Romanian": ("Răspunde doar pe baza documentelor.", "Document", "Întrebare", "Pot lua bicicleta pe feribotul de noapte?", "Bicicletele călătoresc gratuit pe toate feriboturile.\nPe feribotul de noapte locul se rezervă până la prânz.", "Mopedele sunt considerate vehicule."),
    "Swahili": ("Jibu kwa kutumia hati tu.", "Hati", "Swali", "Je, naweza kubeba baiskeli kwenye feri ya usiku?", "Baiskeli husafiri bure kwenye feri zote.\nKwa feri ya usiku weka nafasi kabla ya saa sita mchana.", "Pikipiki huhesabiwa kama magari."),
}
SHAPES = {
    "numbered": ("%i\n\n%d 1:\n%1\n\n%d 2:\n%2", "%q"),
    "in one message": ("", "%i\n\n%d 1: %1\n%d 2: %2\n\n%k: %q"),
    "brackets": ("%i\n\n[1] %1\n[2] %2", "%q"),
    "tags": ('%i\n<docs>\n<doc id="1">%1</doc>\n<doc id="2">%2</doc>\n</docs>', "%q"),
    "files": ("%i\n\n### a.md\n%1\n\n### b.md\n%2", "%q"),
    "headings": ("", "%i\n\n## %d\n\n%1\n\n%2\n\n## %k\n\n%q"),
    "labels": ("", "%i\n\n%d:\n%1\n\n%2\n\n%k: %q"),
}
RULES = (
    "You help customers of a ferry line.\n\nStep 1: Greet the customer.\nStep 2: Ask for the booking of the bike on the ferry.",
    "You are an agent.\n\n<tools>\n<tool>Searches the timetable of the night ferry.</tool>\n<tool>Books a bike on the ferry.</tool>\n</tools>",
    "Du hilfst Kunden einer Fährlinie.\n\nSchritt 1: Begrüße den Kunden der Nachtfähre.\nSchritt 2: Frage nach dem Fahrrad.",
    "Sei Bram.\n\n1. Sii gentile con i passeggeri del traghetto notturno.\n2. Non parlare mai dei prezzi della bici.",
    "Sei un assistente.\n\nEsempio 1:\nUtente: Posso portare il cane?\nAssistente: Sì, sul traghetto.\n\nEsempio 2:\nUtente: La bici è persa.\nAssistente: Mi dispiace.",
    "Ты помощник паромной компании.\n\n1. Поздоровайся с пассажиром ночного парома.\n2. Спроси номер брони велосипеда.",
)
ASKED = (Q, "Kann ich mein Fahrrad auf die Nachtfähre mitnehmen?", "Posso portare la bici sul traghetto notturno?", "Можно ли взять велосипед на ночной паром?")
# fmt: on


@pytest.mark.parametrize("share", [7, pytest.param(1, marks=pytest.mark.night)])
def test_what_is_in_a_span_is_read_whoever_wrote_it(share: int) -> None:
    wrong = {
        f"{case.kind}: {case.name}"
        for case in islice(crossed(), 0, None, share)
        if grade(case, read(case)) != "right"
    }
    assert wrong == set()


def asked(system: str, user: str) -> Node:
    return chat([*([parts("system", system)] if system else []), parts("user", user)], "Yes, if you book.")


def explained(tmp_path: Path, roots: dict[str, Node]) -> dict[str, list[dict[str, list[dict[str, str]]]]]:
    file = tmp_path / "traces.jsonl"
    spans = {name: spans_of(name, root) for name, root in roots.items()}
    file.write_text("\n".join(map(encode_json, spans.values())), encoding="utf-8")
    shown = map(json.loads, run("explain", str(file), "--json").stdout.splitlines())
    records = {each["trace_id"]: each["records"] for each in shown}
    return {name: records[each[0].trace_id] for name, each in spans.items()}


def test_no_word_of_a_passage_is_lost(tmp_path: Path) -> None:
    def filled(text: str, passage: str) -> str:
        return text.replace("%q", Q).replace("%2", LAST).replace("%1", passage)

    roots = {
        f"{passage} in {template}": asked(*(filled(each, PASSAGES[passage]) for each in TEMPLATES[template]))
        for passage, template in product(PASSAGES, TEMPLATES)
    }
    lost = {}
    for name, records in explained(tmp_path, roots).items():
        words = set(re.findall(r"\w+", f"{PASSAGES[name.partition(' in ')[0]]} {LAST}"))
        held = " ".join(each["text"] for record in records for each in record["contexts"])
        lost[name] = words - set(re.findall(r"\w+", held))
    assert {name: words for name, words in lost.items() if words} == {}


def test_passages_are_told_in_languages_without_a_list_of_words(tmp_path: Path) -> None:
    roots, wanted = {}, {}
    for (language, words), (shape, texts) in product(LANGUAGES.items(), SHAPES.items()):
        filled = list(texts)
        for mark, word in zip(("%i", "%d", "%k", "%q", "%1", "%2"), words, strict=True):
            filled = [each.replace(mark, word) for each in filled]
        roots[f"{shape} in {language}"] = asked(*filled)
        wanted[f"{shape} in {language}"] = (words[3], " ".join(words[4:]).split())
    read = {
        name: (each["question"], " ".join(chunk["text"] for chunk in each["contexts"]).split())
        for name, (each,) in explained(tmp_path, roots).items()
    }
    assert read == wanted


def test_rules_are_no_passages_in_any_language(tmp_path: Path) -> None:
    pairs = list(product(RULES, ASKED))
    roots = {f"rules {i}": asked(*pair) for i, pair in enumerate(pairs)}
    roots |= {f"in one {i}": asked("", "\n\n".join(pair)) for i, pair in enumerate(pairs)}
    contexts = {
        name: [each for record in records for each in record["contexts"]]
        for name, records in explained(tmp_path, roots).items()
    }
    assert {name: each for name, each in contexts.items() if each} == {}
