"""rag_evals' rules, as its documentation gives them and its code showed them when it was run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ragtrace.compat.rag_evals import METRICS
from ragtrace.compat.tool import ToolOptions
from ragtrace.model import VerdictLabel
from tests.unit.compat.double import CannedCalls, metric_of, outcome, record

OK, ERROR = "ok", ("error", None)
THREE = ("a", "b", "c")


def canned(*replies: object, cut_off: bool = False) -> CannedCalls:
    texts = [reply if isinstance(reply, str) else json.dumps(reply) for reply in replies]
    return CannedCalls(dict.fromkeys(("statements", "graded_chunks", "relevance"), texts), cut_off=cut_off)


def statement(supported: object = True, ids: object = (0,), **fields: object) -> dict[str, object]:
    return {"statement": "s", "is_supported": supported, "supporting_chunk_ids": ids} | fields


def graded(*grades: tuple[object, object]) -> dict[str, object]:
    return {"graded_chunks": [{"id_chunk": number, "score": score} for number, score in grades]}


def relevance(**fields: object) -> dict[str, object]:
    whole = {
        "overall_score": 0.8,
        "topical_match": 0.5,
        "completeness": 1,
        "conciseness": 0,
        "reasoning": "r",
    }
    return whole | fields


async def measured(
    metric: str, calls: CannedCalls, options: ToolOptions | None = None, **parts: Any
) -> tuple[str, float | None]:
    tool = metric_of(METRICS, metric, "rag_evals")
    given = record(**{"contexts": THREE} | parts)
    return outcome(await tool.run(given, calls, options or ToolOptions()))


@pytest.mark.parametrize(
    ("statements", "score"),
    [
        ([statement()], 1.0),
        ([statement(), statement(False, None)], 0.5),
        ([statement(False, [2])], 0.0),
        ([statement(True, [2, 2], reasoning=5, extra=1)], 1.0),
        ([{"statement": "s", "is_supported": True}], 1.0),
        ([], 0.0),
    ],
)
async def test_faithfulness_is_the_share_of_supported_statements(
    statements: list[dict[str, object]], score: float
) -> None:
    calls = canned({"statements": statements})
    assert await measured("faithfulness", calls) == (OK, score)
    assert calls.asked == ["statements"]


@pytest.mark.parametrize(
    "statements",
    [
        [statement(True, [3])],
        [statement(True, [-1])],
        [statement(False, [7])],
        [statement(True, ["0"])],
        [statement(True, [True])],
        [statement(True, 0)],
        [statement("yes")],
        [statement(1)],
        [statement(None)],
        [{"statement": "s"}],
        [{"is_supported": True}],
        ["s"],
        None,
        {},
    ],
)
async def test_a_reply_out_of_form_is_asked_for_again_and_then_an_error(statements: object) -> None:
    calls = canned({"statements": statements})
    assert await measured("faithfulness", calls) == ERROR
    assert len(calls.asked) == 4


async def test_the_next_request_says_what_was_wrong() -> None:
    calls = canned({"statements": [statement(True, [9])]}, {"statements": [statement()]})
    assert await measured("faithfulness", calls) == (OK, 1.0)
    assert "there is no chunk 9" in calls.prompts[1]


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "No idea.",
        "null",
        '```json\n{"statements": []}\n```',
        'Here: {"statements": []}',
        '{"statements": []} bye',
        '{"statements": []',
        '{"statements": [],}',
        '[{"statements": []}]',
        '\ufeff{"statements": []}',
    ],
)
async def test_only_bare_json_is_read(reply: str) -> None:
    calls = canned(reply, reply, {"statements": [statement()]})
    assert await measured("faithfulness", calls) == (OK, 1.0)
    assert len(calls.asked) == 3


async def test_retries_can_be_bounded() -> None:
    calls = canned("nonsense")
    assert await measured("faithfulness", calls, ToolOptions(max_retries=0)) == ERROR
    assert len(calls.asked) == 1


async def test_a_reply_cut_off_is_not_asked_for_again() -> None:
    calls = canned({"statements": [statement()]}, cut_off=True)
    assert await measured("faithfulness", calls) == ERROR
    assert len(calls.asked) == 1


@pytest.mark.parametrize("metric", ["context_precision", "chunk_precision"])
@pytest.mark.parametrize(
    ("grades", "score"),
    [
        ([(0, True), (1, False), (2, True)], 2 / 3),
        ([(2, True), (0, False)], 1 / 3),
        ([(0, True)], 1 / 3),
        ([(0, True), (0, True), (1, True), (2, False)], 0.75),
        ([(0, True), (0, False)], 0.25),
        ([(0, False), (1, False), (2, False)], 0.0),
    ],
)
async def test_precision_is_the_plain_mean_and_an_ungraded_chunk_counts_0(
    metric: str, grades: list[tuple[object, object]], score: float
) -> None:
    assert await measured(metric, canned(graded(*grades))) == (OK, score)


@pytest.mark.parametrize(
    "grade", [(3, True), (-1, True), ("0", True), (0, 1), (0, "yes"), (0, 0.7), (0, None)]
)
async def test_a_grade_out_of_form_is_refused(grade: tuple[object, object]) -> None:
    calls = canned(graded(grade))
    assert await measured("context_precision", calls) == ERROR
    assert len(calls.asked) == 4


async def test_no_grades_at_all_are_an_error_without_another_call() -> None:
    calls = canned(graded())
    assert await measured("context_precision", calls) == ERROR
    assert len(calls.asked) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (OK, 0.8)),
        ({"overall_score": 1}, (OK, 1.0)),
        ({"extra": 1}, (OK, 0.8)),
        ({"overall_score": 1.0001}, ERROR),
        ({"overall_score": -0.1}, ERROR),
        ({"overall_score": "0.8"}, ERROR),
        ({"overall_score": True}, ERROR),
        ({"overall_score": None}, ERROR),
        ({"topical_match": 2}, ERROR),
        ({"reasoning": None}, ERROR),
    ],
)
async def test_answer_relevance_is_the_number_the_judge_gives(
    fields: dict[str, object], expected: tuple[str, float | None]
) -> None:
    assert await measured("answer_relevance", canned(relevance(**fields))) == expected


@pytest.mark.parametrize(
    ("metric", "parts"),
    [("faithfulness", {"answer": None}), ("context_precision", {"question": None})],
)
async def test_a_missing_part_is_an_error_without_a_call(metric: str, parts: dict[str, None]) -> None:
    calls = canned("")
    assert await measured(metric, calls, **parts) == ERROR
    assert calls.asked == []


@pytest.mark.parametrize(
    ("metric", "fields"),
    [
        ("faithfulness", ["statements", "statement", "is_supported", "supporting_chunk_ids"]),
        ("context_precision", ["graded_chunks", "id_chunk", "score"]),
        ("answer_relevance", ["overall_score", "topical_match", "completeness", "conciseness", "reasoning"]),
    ],
)
async def test_every_prompt_names_the_fields_and_numbers_the_chunks(metric: str, fields: list[str]) -> None:
    calls = canned("")
    await measured(metric, calls, ToolOptions(max_retries=0))
    assert all(f'"{field}"' in calls.prompts[0] for field in fields)
    assert "<<chunk 0 " in calls.prompts[0]


async def test_supporting_chunks_stand_with_their_statement() -> None:
    reply = {"statements": [statement(True, [2, 0, 2], reasoning="why"), statement(False, None)]}
    run = await metric_of(METRICS, "faithfulness", "rag_evals").run(
        record(contexts=THREE), canned(reply), ToolOptions()
    )
    assert [(verdict.label, verdict.chunk_ids, verdict.reason) for verdict in run.verdicts] == [
        (VerdictLabel.SUPPORTED, ("chunk-2", "chunk-0"), "why"),
        (VerdictLabel.UNSUPPORTED, (), None),
    ]


async def test_chunks_are_judged_by_their_number() -> None:
    run = await metric_of(METRICS, "context_precision", "rag_evals").run(
        record(contexts=THREE), canned(graded((2, True), (0, False))), ToolOptions()
    )
    assert [verdict.label for verdict in run.chunk_verdicts] == [
        VerdictLabel.IRRELEVANT,
        VerdictLabel.UNJUDGED,
        VerdictLabel.RELEVANT,
    ]
