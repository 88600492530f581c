"""rag_evals' rules, as its documentation gives them and its code showed them when it was run."""

from __future__ import annotations

import json
from typing import Any

from ragtrace.compat.rag_evals import METRICS
from ragtrace.compat.tool import ToolOptions
from ragtrace.model import VerdictLabel
from tests.unit.compat.double import CannedCalls, metric_of, outcome, record

Reported = tuple[str, float | None]
ERROR: Reported = ("error", None)
THREE = ("a", "b", "c")
RELEVANCE = {
    "overall_score": 0.8,
    "topical_match": 0.5,
    "completeness": 1,
    "conciseness": 0,
    "reasoning": "r",
}


def canned(*replies: object, cut_off: bool = False) -> CannedCalls:
    texts = [reply if isinstance(reply, str) else json.dumps(reply) for reply in replies]
    return CannedCalls(dict.fromkeys(("statements", "graded_chunks", "relevance"), texts), cut_off=cut_off)


def statement(supported: object = True, ids: object = (0,), **fields: object) -> dict[str, object]:
    return {"statement": "s", "is_supported": supported, "supporting_chunk_ids": ids} | fields


def graded(*grades: tuple[object, object]) -> dict[str, object]:
    return {"graded_chunks": [{"id_chunk": number, "score": score} for number, score in grades]}


async def measured(
    metric: str, calls: CannedCalls, options: ToolOptions | None = None, **parts: Any
) -> Reported:
    tool = metric_of(METRICS, metric, "rag_evals")
    given = record(**{"contexts": THREE} | parts)
    return outcome(await tool.run(given, calls, options or ToolOptions()))


async def test_faithfulness_is_the_share_of_supported_statements() -> None:
    cases: list[tuple[list[dict[str, object]], float]] = [
        ([statement()], 1.0),
        ([statement(), statement(False, None)], 0.5),
        ([statement(False, [2])], 0.0),
        ([statement(True, [2, 2], reasoning=5, extra=1)], 1.0),
        ([{"statement": "s", "is_supported": True}], 1.0),
        ([], 0.0),
    ]
    for statements, score in cases:
        calls = canned({"statements": statements})
        assert await measured("faithfulness", calls) == ("ok", score), statements
        assert calls.asked == ["statements"]


async def test_a_reply_out_of_form_is_asked_for_again_with_what_was_wrong_and_then_an_error() -> None:
    for statements in (
        [statement(True, [3])],
        [statement(False, [7])],
        [statement(True, ["0"])],
        [statement("yes")],
        [statement(1)],
        [{"statement": "s"}],
        None,
        {},
    ):
        calls = canned({"statements": statements})
        assert await measured("faithfulness", calls) == ERROR, statements
        assert len(calls.asked) == 4
    calls = canned({"statements": [statement(True, [9])]}, {"statements": [statement()]})
    assert await measured("faithfulness", calls) == ("ok", 1.0)
    assert "there is no chunk 9" in calls.prompts[1]


async def test_only_bare_json_is_read() -> None:
    for reply in (
        "",
        "null",
        '```json\n{"statements": []}\n```',
        '{"statements": []} bye',
        '{"statements": [],}',
        '[{"statements": []}]',
        '\ufeff{"statements": []}',
    ):
        calls = canned(reply, reply, {"statements": [statement()]})
        assert await measured("faithfulness", calls) == ("ok", 1.0), reply
        assert len(calls.asked) == 3


async def test_retries_can_be_bounded_and_a_reply_cut_off_is_not_asked_for_again() -> None:
    calls = canned("nonsense")
    assert await measured("faithfulness", calls, ToolOptions(max_retries=0)) == ERROR
    assert len(calls.asked) == 1
    calls = canned({"statements": [statement()]}, cut_off=True)
    assert await measured("faithfulness", calls) == ERROR
    assert len(calls.asked) == 1


async def test_precision_is_the_plain_mean_and_an_ungraded_chunk_counts_0() -> None:
    for metric in ["context_precision", "chunk_precision"]:
        cases: list[tuple[list[tuple[object, object]], float]] = [
            ([(0, True), (1, False), (2, True)], 2 / 3),
            ([(2, True), (0, False)], 1 / 3),
            ([(0, True), (0, True), (1, True), (2, False)], 0.75),
            ([(0, False), (1, False), (2, False)], 0.0),
        ]
        for grades, score in cases:
            assert await measured(metric, canned(graded(*grades))) == ("ok", score), grades


async def test_a_grade_out_of_form_is_refused_and_none_at_all_are_an_error() -> None:
    grades: list[tuple[object, object]] = [(3, True), (-1, True), ("0", True), (0, 1), (0, "yes"), (0, None)]
    for grade in grades:
        calls = canned(graded(grade))
        assert await measured("context_precision", calls) == ERROR, grade
        assert len(calls.asked) == 4
    calls = canned(graded())
    assert await measured("context_precision", calls) == ERROR
    assert len(calls.asked) == 1


async def test_answer_relevance_is_the_number_the_judge_gives() -> None:
    cases: list[tuple[dict[str, object], Reported]] = [
        ({}, ("ok", 0.8)),
        ({"overall_score": 1}, ("ok", 1.0)),
        ({"extra": 1}, ("ok", 0.8)),
        ({"overall_score": 1.0001}, ERROR),
        ({"overall_score": "0.8"}, ERROR),
        ({"overall_score": True}, ERROR),
        ({"topical_match": 2}, ERROR),
        ({"reasoning": None}, ERROR),
    ]
    for fields, expected in cases:
        assert await measured("answer_relevance", canned(RELEVANCE | fields)) == expected, fields


async def test_verdicts_stand_with_their_statement_or_chunk() -> None:
    reply = {"statements": [statement(True, [2, 0, 2], reasoning="why"), statement(False, None)]}
    given = record(contexts=THREE)
    run = await metric_of(METRICS, "faithfulness", "rag_evals").run(given, canned(reply), ToolOptions())
    assert [(verdict.label, verdict.chunk_ids, verdict.reason) for verdict in run.verdicts] == [
        (VerdictLabel.SUPPORTED, ("chunk-2", "chunk-0"), "why"),
        (VerdictLabel.UNSUPPORTED, (), None),
    ]
    calls = canned(graded((2, True), (0, False)))
    run = await metric_of(METRICS, "context_precision", "rag_evals").run(given, calls, ToolOptions())
    assert [each.label.value for each in run.chunk_verdicts] == ["irrelevant", "unjudged", "relevant"]
