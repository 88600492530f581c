"""promptfoo's rules, as 0.123.1 showed them when it was run on the same replies."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.compat.promptfoo import METRICS
from ragtrace.compat.tool import ToolOptions
from ragtrace.model import VerdictLabel
from tests.unit.compat.double import CannedCalls, metric_of, outcome, record

Reported = tuple[str, float | None]
GRADER_ERROR: Reported = ("grader_error", 0.0)
ALL, HALF, NONE = (("ok", share) for share in (1.0, 0.5, 0.0))
FINAL = "Final verdict for each statement in order:"
CHUNKS = ("Paris is the capital of France.", "France is in Europe.\nIt has 68 million people.")
VECTORS = {"asked": (1.0, 0.0), "same": (1.0, 0.0), "orth": (0.0, 1.0), "opp": (-1.0, 0.0)}


async def measured(
    metric: str, calls: CannedCalls, options: ToolOptions | None = None, **parts: Any
) -> Reported:
    tool = metric_of(METRICS, metric, "promptfoo")
    return outcome(await tool.run(record(**parts), calls, options or ToolOptions()))


async def faithfulness(longform: str, nli: str, **options: Any) -> Reported:
    calls = CannedCalls({"longform": [longform], "nli": [nli]})
    return await measured("faithfulness", calls, ToolOptions(**options))


async def test_verdicts_are_read_off_the_final_line_or_counted() -> None:
    for nli, expected in [
        (f"{FINAL} Yes. No.", HALF),
        (f"{FINAL.upper()} YES. NO.", HALF),
        (f"**{FINAL}** Yes. No.", HALF),
        (f"{FINAL} Yes.", HALF),
        (f"{FINAL} Yes, No.", HALF),
        (f"{FINAL} No. No. No. No. No.", NONE),
        (f"{FINAL} yes/no. no yes.", ALL),
        (f"{FINAL} Yes. Maybe.", GRADER_ERROR),
        (f"{FINAL} 1. Yes. 2. No.", GRADER_ERROR),
        (f"{FINAL} 1) Yes. 2) No.", HALF),
        (f"{FINAL} Yes. No. I hope this helps.", GRADER_ERROR),
        (f"{FINAL} Oui. Non.", GRADER_ERROR),
        (FINAL, GRADER_ERROR),
        (f"Verdict: yes.\n{FINAL} ???", GRADER_ERROR),
        ("Explanation: x Verdict: Yes.\nExplanation: y Verdict: No.", HALF),
        ("Verdict: yes. Verdict: not sure.", HALF),
        ("verdict: no " * 9, NONE),
        ("**Verdict:** Yes", GRADER_ERROR),
        ("", GRADER_ERROR),
    ]:
        assert await faithfulness("one\ntwo", nli) == expected, nli
    assert await faithfulness("one", "Verdict: Yes", text_fallback=False) == GRADER_ERROR
    assert await faithfulness("one", f"{FINAL} Yes.", text_fallback=False) == ALL


async def test_every_line_is_a_statement_and_one_without_a_verdict_is_unsupported() -> None:
    for longform, expected in [
        ("one", ALL),
        ("one\n\n \ntwo\n", HALF),
        ("Here are the statements:\none\ntwo\nthree", ("ok", 0.25)),
        ("a\r\nb\r\n", HALF),
        ("I cannot help with that.", ALL),
        ("", GRADER_ERROR),
        (" \n\t\n\u00a0\ufeff", GRADER_ERROR),
        ("\x1c", ALL),
    ]:
        assert await faithfulness(longform, f"{FINAL} Yes.") == expected, longform


async def test_the_question_is_embedded_before_those_that_were_made_and_an_empty_one_ends_it() -> None:
    calls = CannedCalls({"question": ["same", "opp", "orth"]}, VECTORS)
    status, got = await measured("answer_relevance", calls, question="asked")
    assert (status, got) == ("ok", pytest.approx(0.0, abs=1e-12))
    assert (calls.asked, calls.embedded) == (["question"] * 3, ["asked", "same", "opp", "orth"])
    calls = CannedCalls({"question": ["same", "", "same"]}, VECTORS)
    assert await measured("answer_relevance", calls, question="asked") == GRADER_ERROR
    assert (calls.asked, calls.embedded) == (["question"] * 2, [])


async def test_recall_counts_marked_lines_alone() -> None:
    for reply, expected in [
        ("1. s. So [Attributed]\n2. t. So [Not Attributed]", HALF),
        ("Here you go:\n1. a [Attributed]\n\n2. b [attributed]\nThat is all.", ALL),
        ("[Attributed] [Not Attributed]", NONE),
        ("1. a [Attributed] 2. b [Not Attributed]\n3. c [Attributed]", HALF),
        ("1. a.[Attributed]\r\n2. b.[Not Attributed]\r\n", HALF),
        ("[NotAttributed]\n[ Attributed ]\nAttributed", GRADER_ERROR),
        ("", GRADER_ERROR),
    ]:
        assert await measured("context_recall", CannedCalls({"recall": [reply]})) == expected, reply


PROSE = "Paris is big. It is old! Is it? Rents rose by 3.5 percent. Cats sleep."
LINES = "Paris is big. It is old!\n\nIs it?\n"


async def test_context_relevance_counts_quoted_lines_per_chunk_and_of_one_text_lines_or_sentences() -> None:
    cases: list[tuple[tuple[str, ...], str, Reported]] = [
        (CHUNKS, "Paris is the capital of France.", HALF),
        (CHUNKS, "paris  is THE\tcapital of france.", HALF),
        (CHUNKS, "1. Paris is the capital of France.\n- France is in Europe.", ALL),
        (CHUNKS, "Sure:\nParis is the capital of France.\nAnything else?", ALL),
        (CHUNKS, "Paris is the capital of France.\nParis is the capital of France.", HALF),
        (CHUNKS, "Paris is the capital of France.\n Paris is the capital of France.", ALL),
        (CHUNKS, "Paris is the capital of France. Insufficient Information.", NONE),
        (CHUNKS, "insufficient information", GRADER_ERROR),
        (CHUNKS, "Paris is the capital of France. France is in Europe.", HALF),
        (CHUNKS, "France is in Europe. Paris is the capital of France.", GRADER_ERROR),
        (CHUNKS, '"Paris is the capital of France."', GRADER_ERROR),
        (CHUNKS, "1.", HALF),
        (CHUNKS, " \n", NONE),
        (CHUNKS, "", GRADER_ERROR),
        ((), "Insufficient Information", NONE),
        ((), "Paris is the capital of France.", GRADER_ERROR),
        (("", " \ufeff", CHUNKS[0]), CHUNKS[0], ALL),
        ((CHUNKS[0], CHUNKS[0]), CHUNKS[0], HALF),
        ((PROSE,), "It is old!", ("ok", 0.2)),
        ((PROSE,), "Paris is big.\nIt is old!\nIt is old!", ("ok", 0.4)),
        ((PROSE,), "1. Paris is big. 2. It is old!", ("ok", 0.4)),
        ((f"\n{PROSE}\n",), PROSE, ALL),
        ((PROSE,), "No sentence helps.", GRADER_ERROR),
        ((LINES,), "Paris is big. It is old!", HALF),
    ]
    for contexts, reply, expected in cases:
        calls = CannedCalls({"relevance": [reply]})
        assert await measured("context_relevance", calls, contexts=contexts) == expected, (contexts, reply)


async def test_statements_and_chunks_keep_their_verdicts() -> None:
    calls = CannedCalls({"longform": ["one\ntwo\nthree"], "nli": [f"{FINAL} Yes. No."]})
    run = await metric_of(METRICS, "faithfulness", "promptfoo").run(record(), calls, ToolOptions())
    assert [(verdict.claim.text, verdict.label) for verdict in run.verdicts] == [
        ("one", VerdictLabel.SUPPORTED),
        ("two", VerdictLabel.UNSUPPORTED),
        ("three", VerdictLabel.UNJUDGED),
    ]
    calls = CannedCalls({"relevance": ["1. Paris is the capital of France.\n-"]})
    relevance = metric_of(METRICS, "context_relevance", "promptfoo")
    run = await relevance.run(record(contexts=CHUNKS), calls, ToolOptions())
    assert [each.label for each in run.chunk_verdicts] == [VerdictLabel.RELEVANT, VerdictLabel.IRRELEVANT]
