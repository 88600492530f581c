"""promptfoo's rules, as 0.123.1 showed them when it was run on the same replies."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.compat.promptfoo import METRICS
from ragtrace.compat.tool import ToolOptions
from ragtrace.model import VerdictLabel
from tests.unit.compat.double import CannedCalls, metric_of, outcome, record

OK, ERROR, GRADER_ERROR = "ok", ("error", None), ("grader_error", 0.0)
FINAL = "Final verdict for each statement in order:"
CHUNKS = ("Paris is the capital of France.", "France is in Europe.\nIt has 68 million people.")
VECTORS = {
    "asked": (1.0, 0.0),
    "same": (1.0, 0.0),
    "q60": (0.5, 0.75**0.5),
    "orth": (0.0, 1.0),
    "opp": (-1.0, 0.0),
}


async def measured(
    metric: str, calls: CannedCalls, options: ToolOptions | None = None, **parts: Any
) -> tuple[str, float | None]:
    tool = metric_of(METRICS, metric, "promptfoo")
    return outcome(await tool.run(record(**parts), calls, options or ToolOptions()))


async def faithfulness(longform: str, nli: str, **options: Any) -> tuple[str, float | None]:
    calls = CannedCalls({"longform": [longform], "nli": [nli]})
    return await measured("faithfulness", calls, ToolOptions(**options))


@pytest.mark.parametrize(
    ("nli", "expected"),
    [
        (f"{FINAL} Yes. No.", (OK, 0.5)),
        (f"{FINAL.upper()} YES. NO.", (OK, 0.5)),
        (f"{FINAL}\nYes.\nNo.\n", (OK, 0.5)),
        (f"**{FINAL}** Yes. No.", (OK, 0.5)),
        (f"{FINAL} Yes.", (OK, 0.5)),
        (f"{FINAL} Yes, No.", (OK, 0.5)),
        (f"{FINAL} Yes. . Yes.", (OK, 1.0)),
        (f"{FINAL} No. No. No. No. No.", (OK, 0.0)),
        (f"{FINAL} Yes. Yes. Yes.", (OK, 1.0)),
        (f"{FINAL} Yes. No. No.", (OK, 0.0)),
        (f"{FINAL} yes/no. no yes.", (OK, 1.0)),
        (f"{FINAL} Yes. Maybe.", GRADER_ERROR),
        (f"{FINAL} 1. Yes. 2. No.", GRADER_ERROR),
        (f"{FINAL} 1) Yes. 2) No.", (OK, 0.5)),
        (f"{FINAL} Yes. No. I hope this helps.", GRADER_ERROR),
        (f"{FINAL} Oui. Non.", GRADER_ERROR),
        (f"{FINAL} yes. nö.", GRADER_ERROR),
        (FINAL, GRADER_ERROR),
        (f"Verdict: yes.\n{FINAL} ???", GRADER_ERROR),
        ("Explanation: x Verdict: Yes.\nExplanation: y Verdict: No.", (OK, 0.5)),
        ("Verdict: yes. Verdict: not sure.", (OK, 0.5)),
        ("verdict: no " * 9, (OK, 0.0)),
        ("Verdict: Yes", (OK, 0.5)),
        ("**Verdict:** Yes", GRADER_ERROR),
        ("No idea.", GRADER_ERROR),
        ("", GRADER_ERROR),
        (" ", GRADER_ERROR),
    ],
)
async def test_verdicts_are_read_off_the_final_line_or_counted(
    nli: str, expected: tuple[str, float | None]
) -> None:
    assert await faithfulness("one\ntwo", nli) == expected


@pytest.mark.parametrize(
    ("longform", "expected"),
    [
        ("one", (OK, 1.0)),
        ("one\n\n \ntwo\n", (OK, 0.5)),
        ("Here are the statements:\none\ntwo\nthree", (OK, 0.25)),
        ("a\r\nb\r\n", (OK, 0.5)),
        ("I cannot help with that.", (OK, 1.0)),
        ("", GRADER_ERROR),
        (" \n\t\n\u00a0\ufeff", GRADER_ERROR),
        ("\x1c", (OK, 1.0)),
    ],
)
async def test_every_line_is_a_statement_and_one_without_a_verdict_is_unsupported(
    longform: str, expected: tuple[str, float | None]
) -> None:
    assert await faithfulness(longform, f"{FINAL} Yes.") == expected


async def test_the_fallback_to_counting_can_be_turned_off() -> None:
    assert await faithfulness("one", "Verdict: Yes", text_fallback=False) == GRADER_ERROR
    assert await faithfulness("one", f"{FINAL} Yes.", text_fallback=False) == (OK, 1.0)


async def test_the_question_is_embedded_before_those_that_were_made() -> None:
    calls = CannedCalls({"question": ["same", "opp", "orth"]}, VECTORS)
    status, got = await measured("answer_relevance", calls, question="asked")
    assert (status, got) == (OK, pytest.approx(0.0, abs=1e-12))
    assert (calls.asked, calls.embedded) == (["question"] * 3, ["asked", "same", "opp", "orth"])


async def test_an_empty_question_ends_the_measurement_at_once() -> None:
    calls = CannedCalls({"question": ["same", "", "same"]}, VECTORS)
    assert await measured("answer_relevance", calls, question="asked") == GRADER_ERROR
    assert (calls.asked, calls.embedded) == (["question"] * 2, [])


@pytest.mark.parametrize(
    ("asked", "expected"), [((0.0, 0.0), (OK, 0.0)), ((), ERROR), ((1.0, 0.0, 0.0), ERROR)]
)
async def test_vectors_without_length_are_unlike_and_unequal_ones_an_error(
    asked: tuple[float, ...], expected: tuple[str, float | None]
) -> None:
    calls = CannedCalls({"question": ["same"]}, VECTORS | {"asked": asked})
    assert await measured("answer_relevance", calls, question="asked") == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("1. s. So [Attributed]\n2. t. So [Not Attributed]", (OK, 0.5)),
        ("[ATTRIBUTED]\n[not attributed]", (OK, 0.5)),
        ("Here you go:\n1. a [Attributed]\n\n2. b [attributed]\nThat is all.", (OK, 1.0)),
        ("[Attributed] [Not Attributed]", (OK, 0.0)),
        ("[Attributed] [Attributed]", (OK, 1.0)),
        ("1. a [Attributed] 2. b [Not Attributed]\n3. c [Attributed]", (OK, 0.5)),
        ("\n".join(["[Attributed]"] * 7 + ["[Not Attributed]"] * 24), (OK, 7 / 31)),
        ("1. a.[Attributed]\r\n2. b.[Not Attributed]\r\n", (OK, 0.5)),
        ("[NotAttributed]\n[ Attributed ]\nAttributed", GRADER_ERROR),
        ("[Non attribué]", GRADER_ERROR),
        ("nothing", GRADER_ERROR),
        (" ", GRADER_ERROR),
        ("", GRADER_ERROR),
    ],
)
async def test_recall_counts_marked_lines_alone(reply: str, expected: tuple[str, float | None]) -> None:
    assert await measured("context_recall", CannedCalls({"recall": [reply]})) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Paris is the capital of France.", (OK, 0.5)),
        ("paris  is THE\tcapital of france.", (OK, 0.5)),
        ("1. Paris is the capital of France.\n- France is in Europe.", (OK, 1.0)),
        ("Sure:\nParis is the capital of France.\nAnything else?", (OK, 1.0)),
        ("Paris is the capital of France.\nParis is the capital of France.", (OK, 0.5)),
        ("Paris is the capital of France.\n Paris is the capital of France.", (OK, 1.0)),
        ("Insufficient Information", (OK, 0.0)),
        ("Paris is the capital of France. Insufficient Information.", (OK, 0.0)),
        ("insufficient information", GRADER_ERROR),
        ("I cannot help with that.", GRADER_ERROR),
        ("Paris is the capital of France. France is in Europe.", (OK, 0.5)),
        ("France is in Europe. Paris is the capital of France.", GRADER_ERROR),
        ('"Paris is the capital of France."', GRADER_ERROR),
        ("• France is in Europe.", GRADER_ERROR),
        ("1.", (OK, 0.5)),
        ("-", (OK, 0.5)),
        (" \n", (OK, 0.0)),
        ("", GRADER_ERROR),
    ],
)
async def test_context_relevance_counts_quoted_lines_per_chunk(
    reply: str, expected: tuple[str, float | None]
) -> None:
    calls = CannedCalls({"relevance": [reply]})
    assert await measured("context_relevance", calls, contexts=CHUNKS) == expected


@pytest.mark.parametrize(
    ("contexts", "reply", "expected"),
    [
        ((), "Insufficient Information", (OK, 0.0)),
        ((), "Paris is the capital of France.", GRADER_ERROR),
        ((), " ", (OK, 0.0)),
        (("", " \ufeff", CHUNKS[0]), CHUNKS[0], (OK, 1.0)),
        ((CHUNKS[0], CHUNKS[0]), CHUNKS[0], (OK, 0.5)),
    ],
)
async def test_empty_chunks_are_no_units(
    contexts: tuple[str, ...], reply: str, expected: tuple[str, float | None]
) -> None:
    calls = CannedCalls({"relevance": [reply]})
    assert await measured("context_relevance", calls, contexts=contexts) == expected


PROSE = "Paris is big. It is old! Is it? Rents rose by 3.5 percent. Cats sleep."
LINES = "Paris is big. It is old!\n\nIs it?\n"


@pytest.mark.parametrize(
    ("context", "reply", "expected"),
    [
        (PROSE, "It is old!", (OK, 0.2)),
        (PROSE, "Paris is big. It is old!", (OK, 0.4)),
        (PROSE, "Paris is big.\nIt is old!\nIt is old!", (OK, 0.4)),
        (PROSE, "1. Paris is big. 2. It is old!", (OK, 0.4)),
        (f"\n{PROSE}\n", PROSE, (OK, 1.0)),
        (PROSE, "No sentence helps.", GRADER_ERROR),
        (PROSE, "Insufficient Information", (OK, 0.0)),
        (LINES, "Paris is big. It is old!", (OK, 0.5)),
        (CHUNKS[0], CHUNKS[0], (OK, 1.0)),
    ],
)
async def test_of_one_text_lines_count_or_else_sentences(
    context: str, reply: str, expected: tuple[str, float | None]
) -> None:
    calls = CannedCalls({"relevance": [reply]})
    assert await measured("context_relevance", calls, contexts=(context,)) == expected


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("faithfulness", {"question": None}),
        ("faithfulness", {"answer": None}),
        ("answer_relevance", {"question": None}),
        ("context_recall", {"reference": None}),
        ("context_relevance", {"question": None}),
    ],
)
async def test_a_missing_part_is_an_error_without_a_call(metric: str, parts: dict[str, None]) -> None:
    calls = CannedCalls({})
    assert await measured(metric, calls, **parts) == ERROR
    assert calls.asked == []


@pytest.mark.parametrize(
    ("metric", "step", "formats"),
    [
        ("faithfulness", "longform", ["one statement a line"]),
        ("context_recall", "recall", ["[Attributed]", "[Not Attributed]"]),
        ("context_relevance", "relevance", ["Insufficient Information"]),
        ("answer_relevance", "question", ["one question"]),
    ],
)
async def test_every_prompt_names_the_format_of_its_reply(metric: str, step: str, formats: list[str]) -> None:
    calls = CannedCalls({step: [""]})
    await measured(metric, calls)
    assert all(wanted in calls.prompts[0] for wanted in formats)


async def test_the_verdict_prompt_numbers_the_statements_and_shows_the_final_line() -> None:
    calls = CannedCalls({"longform": ["one\n\ntwo"], "nli": [""]})
    await measured("faithfulness", calls)
    assert "1. one\n2. two" in calls.prompts[1]
    assert f"{FINAL} Yes. No." in calls.prompts[1]


async def test_statements_keep_their_verdicts() -> None:
    calls = CannedCalls({"longform": ["one\ntwo\nthree"], "nli": [f"{FINAL} Yes. No."]})
    run = await metric_of(METRICS, "faithfulness", "promptfoo").run(record(), calls, ToolOptions())
    assert [(verdict.claim.text, verdict.label) for verdict in run.verdicts] == [
        ("one", VerdictLabel.SUPPORTED),
        ("two", VerdictLabel.UNSUPPORTED),
        ("three", VerdictLabel.UNJUDGED),
    ]


async def test_chunks_that_were_quoted_are_relevant() -> None:
    calls = CannedCalls({"relevance": ["1. Paris is the capital of France.\n-"]})
    run = await metric_of(METRICS, "context_relevance", "promptfoo").run(
        record(contexts=CHUNKS), calls, ToolOptions()
    )
    assert [verdict.label for verdict in run.chunk_verdicts] == [
        VerdictLabel.RELEVANT,
        VerdictLabel.IRRELEVANT,
    ]
