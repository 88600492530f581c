"""Citations that models' providers return beside an answer: from spans to what people see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragtrace.traces.otlp import decode_json, encode_json
from tests.integration.cli.program import json_lines, run
from tests.integration.cli.test_evaluate import write
from tests.reading.kinds import Node, chat, dumped, langfuse, node, oi, parts, spans_of
from tests.reading.unseen import doc, retrieval

Q = "How long do refunds take?"
PAID, BLUE = "Refunds are paid within 14 days.", "Our shop is blue, as it was."
FIRST, SECOND = "Rückzahlungen 🎉 take 14 days.", "The shop is blue."
A = f"{FIRST} {SECOND}"
BOTH = [(FIRST, ["faq"]), (SECOND, ["shop"])]
BOTH_PARTS = [(f"{FIRST} ", ["faq"]), (SECOND, ["shop"])]
ONE = [(SECOND, ["shop"])]


def openai(*annotations: object, **more: object) -> dict[str, Any]:
    """Return a response of OpenAI's Responses."""
    said = {"type": "output_text", "text": A, "annotations": annotations}
    return {"output": [{"type": "message", "role": "assistant", "content": [said]}], **more}


def at(words: str, unit: str = "utf-32-le", size: int = 4) -> tuple[int, int]:
    start = len(A[: A.index(words)].encode(unit)) // size
    return start, start + len(words.encode(unit)) // size


def rag(*below: Node, said: object = A) -> Node:
    return langfuse("chain", Q, said, retrieval(doc(PAID, "faq"), doc(BLUE, "shop")), *below)


def supported(words: str, *places: int, unit: tuple[str, int] = ("utf-8", 1)) -> dict[str, Any]:
    start, end = at(words, *unit)
    segment = {"startIndex": start, "endIndex": end, "text": words}
    return {"segment": segment, "groundingChunkIndices": places}


def gemini(*supports: object) -> dict[str, Any]:
    chunks = [{"retrievedContext": {"text": text, "uri": f"gs://{i}"}} for i, text in enumerate([PAID, BLUE])]
    grounding = {"groundingChunks": chunks, "groundingSupports": supports}
    content = {"role": "model", "parts": [{"text": A}]}
    return {"candidates": [{"content": content, "groundingMetadata": grounding}]}


def llm(response: object, *given: object) -> Node:
    """Return a model's span of Langfuse, which keeps request and response as they are."""
    return langfuse(
        "generation", [{"role": "user", "content": [*given, {"type": "text", "text": Q}]}], response
    )


def anthropic(key: str, *indices: int) -> dict[str, Any]:
    """Return Claude's reply, which begins a new block where a citation begins and ends."""
    cited = (PAID, BLUE)
    blocks = [
        {"type": "text", "text": FIRST[:-1], "citations": [_located(key, indices[0], cited[0])]},
        {"type": "text", "text": ". "},
        {"type": "text", "text": SECOND, "citations": [_located(key, indices[1], cited[1])]},
    ]
    return {"type": "message", "role": "assistant", "content": blocks}


def _located(key: str, index: int, cited: str) -> dict[str, Any]:
    kind = "search_result_location" if key.startswith("search") else "char_location"
    return {"type": kind, "cited_text": cited[:24], key: index, "document_title": "T", "file_id": None}


def converse(*parts: tuple[str, str]) -> dict[str, Any]:
    """Return a reply of Bedrock's Converse, whose blocks hold a part of the answer with its citations."""
    blocks = [
        {
            "citationsContent": {
                "content": [{"text": said}],
                "citations": [
                    {
                        "title": "handbook",
                        "sourceContent": [{"text": source}],
                        "location": {"documentChar": {"documentIndex": 0, "start": 0, "end": len(source)}},
                    }
                ],
            }
        }
        for said, source in parts
    ]
    return {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "end_turn"}


def document(text: str) -> dict[str, Any]:
    return {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": text},
        "title": "T",
    }


def shapes() -> Iterator[tuple[str, Node, Sequence[tuple[str | None, list[str]]]]]:
    """Yield spans as instrumentations write them, with the cited parts of the answer and the chunks."""
    claude, text = anthropic("document_index", 0, 1), [(FIRST[:-1], ["faq"]), (SECOND, ["shop"])]
    yield "anthropic", rag(llm(claude, document(PAID), document(BLUE))), text
    asked = {"messages": [{"role": "user", "content": Q}]}
    yield "anthropic-openinference", rag(oi("LLM", asked, claude)), text
    kept = [{**each, "content": each["text"]} for each in claude["content"]]
    yield "otel-parts", rag(chat([parts("user", Q)], {"role": "assistant", "parts": kept})), text
    # one text in both documents: the index tells which of them was cited
    block = {"type": "text", "text": A, "citations": [_located("document_index", 1, PAID)]}
    both = f"{PAID} {BLUE}"
    same = llm({**claude, "content": [block]}, document(PAID), document(both))
    found = retrieval(doc(PAID, "faq"), doc(both, "shop"))
    yield "document-index", langfuse("chain", Q, A, found, same), [(A, ["shop"])]
    start, end = at(SECOND)
    file = {"type": "file_citation", "index": len(A), "file_id": "shop", "filename": "shop.md"}
    yield "openai-file", rag(llm(openai(file))), [("", ["shop"])]
    place = {"start_index": start, "end_index": end, "url": "shop"}
    yield "openai-url", rag(llm(openai({"type": "url_citation", **place}))), ONE
    message = {"role": "assistant", "content": A}
    whole = {**message, "annotations": [{"type": "url_citation", "url_citation": {**place, "title": "S"}}]}
    yield "openai-chat", rag(llm({"choices": [{"message": whole}]})), ONE
    snippet = {"type": "document", "id": "doc:0", "document": {"id": "doc:0", "snippet": PAID}}
    first = {"start": at(FIRST)[0], "end": at(FIRST)[1], "text": FIRST, "sources": [snippet]}
    second = {"start": start, "end": end, "text": SECOND}
    named = {**second, "sources": [{"type": "document", "id": "shop", "document": {}}]}
    said = {"content": [{"type": "text", "text": A}], "citations": [first, named], "role": "assistant"}
    yield "cohere-2", rag(llm({"message": said})), BOTH
    yield "cohere-1", rag(llm({"text": A, "citations": [{**second, "document_ids": ["shop"]}]})), ONE
    yield "gemini", rag(llm(gemini(supported(FIRST, 0), supported(SECOND, 1)))), BOTH
    grounding = gemini(supported(SECOND, 1))["candidates"][0]["groundingMetadata"]
    vercel = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.prompt.messages": dumped(asked["messages"]),
        "ai.response.text": A,
        "ai.response.providerMetadata": dumped({"google": {"groundingMetadata": grounding}}),
    }
    yield "vercel", rag(node("ai.generateText.doGenerate", vercel)), ONE
    part = {"textResponsePart": {"text": SECOND, "span": {"start": start, "end": end - 1}}}
    cited = {"generatedResponsePart": part, "retrievedReferences": [{"content": {"text": BLUE}}]}
    yield "bedrock", rag(llm({"output": {"text": A}, "citations": [cited]})), ONE
    yield "bedrock-converse", rag(llm(converse((f"{FIRST} ", PAID), (SECOND, BLUE)))), BOTH_PARTS
    utf16 = supported(SECOND, 1, unit=("utf-16-le", 2))
    yield "gemini-counted-by-javascript", rag(llm(gemini(utf16))), ONE


def bad() -> Iterator[tuple[str, Node, Sequence[tuple[str | None, list[str]]]]]:
    """Yield citations that cannot be trusted: none of them leads to a part of the answer, or to a chunk."""
    url = {"type": "url_citation", "url": "shop"}
    for name, start, end in (
        ("beyond", len(A) - 3, len(A) + 1),
        ("negative", -3, 5),
        ("backwards", 9, 2),
        ("half", 3, None),
        ("words", "0", "5"),
        ("true", True, 5),
        ("huge", 0, 10**30),
    ):
        yield name, rag(llm(openai({**url, "start_index": start, "end_index": end}))), [(None, ["shop"])]
    moved = supported(SECOND, 1)
    moved["segment"]["text"] = "The shop was sold."
    yield "other-words", rag(llm(gemini(moved))), [(None, ["shop"])]
    yield "no-such-chunk", rag(llm(gemini(supported(SECOND, 7)))), [(SECOND, [])]
    yield (
        "no-such-document",
        rag(llm(anthropic("document_index", 9, -1), document(PAID))),
        [(FIRST[:-1], ["faq"]), (SECOND, ["shop"])],
    )


CASES = [*shapes(), *bad()]


def test_a_citation_leads_to_a_part_of_the_answer_and_to_chunks(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join(encode_json(spans_of(name, root)) for name, root, _ in CASES), encoding="utf-8")
    shown = json_lines(run("explain", str(file), "--json").stdout)
    read = {each["trace_id"]: each["records"][0] for each in shown}
    found = {}
    for name, root, _ in CASES:
        record = read[spans_of(name, root)[0].trace_id]
        assert record["answer"] == A, name
        found[name] = [
            (None if each["start"] is None else A[each["start"] : each["end"]], each["chunk_ids"])
            for each in record["provider_citations"]
        ]
    assert found == {name: expected for name, _, expected in CASES}


def backfilled(folder: Path, *roots: Node) -> tuple[list[dict[str, Any]], str]:
    """Judge traces, and return what the carriers' results say and what a person reads."""
    source, out = folder / "traces.jsonl", folder / "out.jsonl"
    lines = [encode_json(spans_of(str(number), root)) for number, root in enumerate(roots)]
    source.write_text("\n".join(lines), encoding="utf-8")
    asked = ("--judge", "scripted", "--metrics", "citation_precision,citation_recall", "--yes")
    shown = run("backfill", "--from", f"otlp-file:{source}", "--to", f"otlp-file:{out}", *asked)
    assert shown.exit_code == 0, shown.output
    spans = [span for line in out.read_text().splitlines() for span in decode_json(line)]
    return [dict(event.attributes) for span in spans for event in span.events], " ".join(shown.stdout.split())


REFUNDS, OPEN = "Refunds take 14 days.", "Open all day."
FAQ, HOURS = "Refunds take 14 days. Shoes cost 9 euros.", "Open all day."


def cited(words: str, *sources: str, of: str) -> dict[str, Any]:
    """Return a citation of Cohere's."""
    start = of.index(words)
    listed = [{"type": "document", "id": each} for each in sources]
    return {"start": start, "end": start + len(words), "text": words, "sources": listed}


def answered(answer: str, *citations: object) -> Node:
    message = {"role": "assistant", "content": [{"type": "text", "text": answer}], "citations": citations}
    found = retrieval(doc(FAQ, "faq"), doc(HOURS, "hours"))
    return langfuse("chain", Q, answer, found, llm({"message": message}))


def results(events: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    (found,) = [each for each in events if each.get("gen_ai.evaluation.name") == metric]
    return found


def test_what_a_provider_cites_for_a_sentence_is_judged(tmp_path: Path) -> None:
    # the first sentence is cited rightly, the second by a chunk that does not say it, the third not: 1/2, 1/3
    answer = f"{REFUNDS} {OPEN} Shoes cost 9 euros."
    node = answered(answer, cited("14 days", "faq", of=answer), cited(OPEN, "faq", of=answer))
    events, shown = backfilled(tmp_path, node)
    precision, recall = results(events, "citation_precision"), results(events, "citation_recall")
    assert precision["gen_ai.evaluation.score.value"] == 1 / 2
    assert recall["gen_ai.evaluation.score.value"] == pytest.approx(1 / 3)
    assert precision["ragtrace.detail.marks"] == 2
    reasons = [each.get("ragtrace.claim.reason") for each in events]
    assert "it cites [faq], which does not support it" in reasons
    assert "it cites nothing" in reasons
    assert "1 of 2 cited claims" in shown


def test_a_source_whose_text_is_not_recorded_leaves_its_claims_undecided(tmp_path: Path) -> None:
    answer = f"{REFUNDS} {OPEN}"
    node = answered(answer, cited(REFUNDS, "faq", of=answer), cited(OPEN, "https://x.example", of=answer))
    events, _ = backfilled(tmp_path, node)
    precision = results(events, "citation_precision")
    assert (precision["gen_ai.evaluation.score.value"], precision["ragtrace.detail.coverage"]) == (1, 0.5)
    reasons = [each.get("ragtrace.claim.reason") for each in events]
    assert "it cites [https://x.example], whose text is not recorded" in reasons


def test_a_citation_without_a_place_in_the_answer_is_ignored_and_told(tmp_path: Path) -> None:
    answer = f"{REFUNDS} {OPEN}"
    moved = {**cited(OPEN, "faq", of=answer), "text": "Closed.", "start": 90, "end": 97}
    events, _ = backfilled(tmp_path, answered(answer, cited(REFUNDS, "faq", of=answer), moved))
    precision = results(events, "citation_precision")
    assert (precision["gen_ai.evaluation.score.value"], precision["ragtrace.detail.marks_ignored"]) == (1, 1)
    assert "1 citation ignored: not for a part of the answer" in precision["gen_ai.evaluation.explanation"]
    explained = run("explain", str(tmp_path / "traces.jsonl"), columns=200).stdout
    assert (
        "2 citations (1 of a part that the answer does not have) beside it, of the model's provider"
        in explained
    )


def test_records_have_citations_too(tmp_path: Path) -> None:
    row = {
        "question": Q,
        "contexts": [{"id": "faq", "text": FAQ}, {"id": "hours", "text": HOURS}],
        "answer": f"{REFUNDS} {OPEN}",
        "provider_citations": [
            {"start": 0, "end": 21, "chunk_ids": ["faq"]},
            {"start": 22, "end": 35, "chunk_ids": ["hours"]},
            {"start": 30, "end": 99, "chunk_ids": ["faq"]},
        ],
    }
    asked = ("--judge", "scripted", "--metrics", "citation_recall", "--json")
    (line,) = json_lines(run("evaluate", write(tmp_path / "cases.jsonl", row), *asked).stdout)
    assert (line["score"], line["details"]["marks"], line["details"]["marks_ignored"]) == (1, 2, 1)
    row["provider_citations"] = [{"start": "first", "end": 3}]
    refused = run("evaluate", write(tmp_path / "cases.jsonl", row), *asked)
    assert refused.exit_code == 2
    assert "field `provider_citations.0.start`: write a whole number" in " ".join(refused.stderr.split())
