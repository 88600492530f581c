"""deepeval's rules, as 3.9.9 and 4.3.1 showed them when they were run on the same replies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ragtrace.compat.deepeval import METRICS
from ragtrace.compat.tool import ToolOptions
from ragtrace.model import Direction, VerdictLabel
from tests.unit.compat.double import NO_REASON, CannedCalls, metric_of, outcome, record

OK, ERROR = "ok", ("error", None)
BOTH = pytest.mark.parametrize("profile", ["deepeval-3", "deepeval-4"])


def said(*verdicts: object) -> str:
    """Return a reply with these words, or entries."""
    entries = [verdict if isinstance(verdict, dict) else entry(verdict) for verdict in verdicts]
    return json.dumps({"verdicts": entries})


def entry(word: object, **fields: object) -> dict[str, object]:
    return {"verdict": word, "reason": "r", "statement": "s"} | fields


def canned(**replies: str | list[str]) -> CannedCalls:
    defaults: dict[str, Any] = {
        "truths": '{"truths": ["t"]}',
        "claims": '{"claims": ["c1", "c2"]}',
        "statements": '{"statements": ["s1", "s2"]}',
        "verdicts": said("yes"),
        "ctx_verdicts": said("yes"),
        "reason": '{"reason": "because"}',
    }
    return CannedCalls(
        {step: [text] if isinstance(text, str) else text for step, text in (defaults | replies).items()}
    )


async def measured(
    metric: str, profile: str, calls: CannedCalls, options: ToolOptions = NO_REASON, **parts: Any
) -> tuple[str, float | None]:
    return outcome(await metric_of(METRICS, metric, profile).run(record(**parts), calls, options))


@BOTH
async def test_options_reach_the_rule(profile: str) -> None:
    penalized, strict = ToolOptions(penalize_ambiguous_claims=True), ToolOptions(strict_mode=True)
    calls = canned(verdicts=said("yes", "idk", "no", "yes"))
    assert await measured("faithfulness", profile, calls, penalized) == (OK, 0.5)
    assert await measured("faithfulness", profile, calls, strict) == (OK, 0.0)


@BOTH
@pytest.mark.parametrize(
    ("metric", "asked"),
    [
        ("faithfulness", ["truths", "claims", "verdicts", "reason"]),
        ("answer_relevance", ["statements", "verdicts", "reason"]),
        ("context_precision", ["verdicts", "reason"]),
        ("context_recall", ["verdicts", "reason"]),
        ("context_relevance", ["ctx_verdicts", "ctx_verdicts", "reason"]),
        ("hallucination", ["verdicts", "reason"]),
    ],
)
async def test_a_reason_costs_one_more_call(profile: str, metric: str, asked: list[str]) -> None:
    calls = canned()
    assert (await measured(metric, profile, calls, ToolOptions(include_reason=True)))[0] == OK
    assert calls.asked == asked


@BOTH
async def test_an_unreadable_reason_costs_the_score(profile: str) -> None:
    options = ToolOptions(include_reason=True)
    assert await measured("faithfulness", profile, canned(reason="Because."), options) == ERROR


@BOTH
async def test_without_statements_the_answer_is_relevant(profile: str) -> None:
    calls = canned(statements='{"statements": []}')
    assert await measured("answer_relevance", profile, calls) == (OK, 1.0)
    assert calls.asked == ["statements"]


@BOTH
async def test_both_lists_are_asked_for_before_one_of_them_is_read(profile: str) -> None:
    calls = canned(truths="no json")
    assert await measured("faithfulness", profile, calls) == ERROR
    assert calls.asked == ["truths", "claims"]


@BOTH
@pytest.mark.parametrize(
    ("truths", "claims", "expected"),
    [
        ('["t"]', '["c"]', (OK, 1.0)),
        ("[]", '["c"]', (OK, 1.0)),
        ('["t", null]', '["c"]', ERROR),
        ("null", '["c"]', ERROR),
        ("null", "[]", ERROR),
        ('"a text"', '["c"]', (OK, 1.0)),
        ('["t"]', "null", ERROR),
        ('["t"]', "3", ERROR),
        ('["t"]', '"a text"', (OK, 1.0)),
        ('["t"]', "{}", (OK, 1.0)),
        ('["t"]', "[null]", (OK, 1.0)),
    ],
)
async def test_lists_of_texts_are_taken_as_they_come(
    profile: str, truths: str, claims: str, expected: tuple[str, float | None]
) -> None:
    calls = canned(truths=f'{{"truths": {truths}}}', claims=f'{{"claims": {claims}}}')
    assert await measured("faithfulness", profile, calls) == expected


@BOTH
@pytest.mark.parametrize("stated", ["null", '"a text"', "{}", "3"])
async def test_statements_must_be_a_list(profile: str, stated: str) -> None:
    calls = canned(statements=f'{{"statements": {stated}}}')
    assert await measured("answer_relevance", profile, calls) == ERROR


YES_NO = said("yes", "no")


@BOTH
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (YES_NO, (OK, 0.5)),
        (f"Here you go:\n```json\n{YES_NO}\n```\nHope it helps", (OK, 0.5)),
        (YES_NO[:-1], ERROR),
        (YES_NO[: len(YES_NO) // 2], ERROR),
        (YES_NO.replace("}", ", }"), (OK, 0.5)),
        (YES_NO.replace("]", ",\n]"), (OK, 0.5)),
        (YES_NO + YES_NO, ERROR),
        (f"{{}} {YES_NO}", ERROR),
        (f"an open {{ brace {YES_NO}", ERROR),
        (f"{YES_NO} a closing }} brace", ERROR),
        (f"[{YES_NO}]", (OK, 0.5)),
        (f"\ufeff{YES_NO}", (OK, 0.5)),
        (YES_NO.replace('"', "'"), ERROR),
        (YES_NO.upper(), None),
        ("I cannot help with that.", ERROR),
        ("", ERROR),
        ("null", ERROR),
        pytest.param('{"x": ' + "[" * 100_000, ERROR, id="deep"),
        pytest.param('{"x": 1' + "0" * 5_000 + "}", ERROR, id="huge number"),
    ],
)
async def test_json_is_read_from_the_first_brace_to_the_last(
    profile: str, reply: str, expected: tuple[str, float | None] | None
) -> None:
    # in 4 a reply without the field `verdicts` is a reply with an empty list
    absent = (OK, 1.0) if profile == "deepeval-4" else ERROR
    assert await measured("faithfulness", profile, canned(verdicts=reply)) == (expected or absent)


async def test_an_object_cut_off_before_any_brace_closes_gets_one() -> None:
    calls = canned(truths='{"truths": ["t"]')
    assert await measured("faithfulness", "deepeval-4", calls) == (OK, 1.0)


@pytest.mark.parametrize(
    ("word", "three", "four"),
    [
        ("YES", ERROR, (OK, 0.5)),
        ("No, it contradicts the context", ERROR, (OK, 0.0)),
        ("  yes\n", ERROR, (OK, 0.5)),
        ("borderline", ERROR, (OK, 0.5)),
        ("idk", (OK, 0.5), (OK, 0.5)),
        ("maybe", ERROR, (OK, 0.0)),
        ("not mentioned", ERROR, (OK, 0.0)),
        ("ja", ERROR, (OK, 0.0)),
        ("да", ERROR, (OK, 0.0)),
        ("**yes**", ERROR, (OK, 0.0)),
        ("yesterday", ERROR, (OK, 0.0)),
        ("", ERROR, (OK, 0.0)),
        (None, ERROR, (OK, 0.0)),
        (True, ERROR, (OK, 0.0)),
        (1, ERROR, (OK, 0.0)),
        (["yes"], ERROR, (OK, 0.0)),
    ],
)
async def test_foreign_words_are_an_error_in_3_and_dropped_in_4(
    word: object, three: tuple[str, float | None], four: tuple[str, float | None]
) -> None:
    reply = said(word, "no")
    assert await measured("faithfulness", "deepeval-3", canned(verdicts=reply)) == three
    assert await measured("faithfulness", "deepeval-4", canned(verdicts=reply)) == four


async def test_only_dropped_words_leave_an_empty_list() -> None:
    calls = canned(verdicts=said("maybe", "perhaps"))
    assert await measured("faithfulness", "deepeval-4", calls) == (OK, 1.0)


async def test_a_dropped_entry_is_not_looked_at_further() -> None:
    calls = canned(verdicts=said(entry("maybe", reason=5), "yes"))
    assert await measured("context_precision", "deepeval-4", calls) == (OK, 1.0)


@pytest.mark.parametrize(
    ("metric", "word", "three", "four"),
    [
        ("context_precision", "YES", (OK, 1.0), (OK, 1.0)),
        ("context_precision", " yes ", (OK, 1.0), (OK, 1.0)),
        ("context_precision", "maybe", (OK, 0.5), (OK, 1.0)),
        ("context_recall", "YES", (OK, 1.0), (OK, 1.0)),
        ("context_recall", " yes ", (OK, 0.5), (OK, 1.0)),
        ("context_recall", "idk", (OK, 0.5), (OK, 1.0)),
        ("context_relevance", "Yes.", (OK, 0.5), (OK, 1.0)),
        ("context_relevance", 1, ERROR, (OK, 1.0)),
        ("hallucination", "YES", ERROR, (OK, 1.0)),
    ],
)
async def test_metrics_of_the_context_count_a_foreign_word_as_a_no_in_3(
    metric: str, word: object, three: tuple[str, float | None], four: tuple[str, float | None]
) -> None:
    reply = said(word, "yes")
    calls_3, calls_4 = (canned(verdicts=reply, ctx_verdicts=reply) for _ in range(2))
    assert await measured(metric, "deepeval-3", calls_3) == three
    assert await measured(metric, "deepeval-4", calls_4) == four


@pytest.mark.parametrize(
    ("listed", "three", "four"),
    [
        ("[]", (OK, 1.0), (OK, 1.0)),
        ("null", ERROR, (OK, 1.0)),
        ("{}", (OK, 1.0), (OK, 1.0)),
        ('""', (OK, 1.0), (OK, 1.0)),
        ("0", ERROR, (OK, 1.0)),
        ("5", ERROR, ERROR),
        ('"yes"', ERROR, ERROR),
        ('["yes"]', ERROR, ERROR),
        ("[null]", ERROR, ERROR),
        ('{"0": {"verdict": "yes"}}', ERROR, ERROR),
        ('[{"Verdict": "yes"}]', ERROR, (OK, 1.0)),
    ],
)
async def test_what_is_no_list_of_objects(
    listed: str, three: tuple[str, float | None], four: tuple[str, float | None]
) -> None:
    reply = f'{{"verdicts": {listed}}}'
    assert await measured("faithfulness", "deepeval-3", canned(verdicts=reply)) == three
    assert await measured("faithfulness", "deepeval-4", canned(verdicts=reply)) == four


@BOTH
@pytest.mark.parametrize("metric", ["context_precision", "context_recall", "hallucination"])
@pytest.mark.parametrize("reason", [None, 5, ["r"]])
async def test_metrics_that_demand_a_reason_refuse_a_verdict_without(
    profile: str, metric: str, reason: object
) -> None:
    assert await measured(metric, profile, canned(verdicts=said(entry("yes", reason=reason)))) == ERROR


@BOTH
@pytest.mark.parametrize(("reason", "status"), [(None, OK), ("", OK), (5, "error")])
async def test_the_reason_of_a_claim_is_optional(profile: str, reason: object, status: str) -> None:
    calls = canned(verdicts=said(entry("yes", reason=reason)))
    assert (await measured("faithfulness", profile, calls))[0] == status


@BOTH
async def test_context_relevance_demands_the_statement(profile: str) -> None:
    calls = canned(ctx_verdicts='{"verdicts": [{"verdict": "yes"}]}')
    assert await measured("context_relevance", profile, calls) == ERROR


@BOTH
async def test_every_chunk_is_asked_about_before_a_reply_is_read(profile: str) -> None:
    calls = canned(ctx_verdicts=["no json", said("yes")])
    assert await measured("context_relevance", profile, calls) == ERROR
    assert calls.asked == ["ctx_verdicts", "ctx_verdicts"]


@BOTH
async def test_faithfulness_without_chunks_asks_all_the_same(profile: str) -> None:
    assert await measured("faithfulness", profile, canned(verdicts=said("idk")), contexts=()) == (OK, 1.0)


def test_hallucination_says_which_way_is_good() -> None:
    assert metric_of(METRICS, "hallucination", "deepeval-3").direction is Direction.LOWER_IS_BETTER
    assert metric_of(METRICS, "hallucination", "deepeval-4").direction is Direction.HIGHER_IS_BETTER


@BOTH
@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("faithfulness", {"answer": ""}),
        ("faithfulness", {"answer": None}),
        ("faithfulness", {"question": None}),
        ("answer_relevance", {"answer": ""}),
        ("context_precision", {"reference": None}),
        ("context_recall", {"reference": None}),
        ("context_relevance", {"question": None}),
        ("hallucination", {"answer": ""}),
    ],
)
async def test_a_missing_part_is_an_error_without_a_call(
    profile: str, metric: str, parts: dict[str, Any]
) -> None:
    calls = canned()
    assert await measured(metric, profile, calls, **parts) == ERROR
    assert calls.asked == []


@BOTH
async def test_a_blank_answer_and_an_empty_reference_are_there(profile: str) -> None:
    assert (await measured("faithfulness", profile, canned(), answer=" "))[0] == OK
    assert (await measured("context_recall", profile, canned(), reference=""))[0] == OK


@pytest.mark.parametrize(
    ("limit", "wording"),
    [(None, "all undisputed facts"), (1, "single most"), (4, "the 4 most"), (-2, "the 0 most")],
)
async def test_the_limit_of_truths_is_asked_for_and_not_enforced(limit: int | None, wording: str) -> None:
    calls = canned(truths='{"truths": ["t1", "t2", "t3", "t4", "t5"]}')
    await measured("faithfulness", "deepeval-4", calls, ToolOptions(truths_extraction_limit=limit))
    assert wording in calls.prompts[0]
    assert "t5" in calls.prompts[2]


@BOTH
@pytest.mark.parametrize(
    ("metric", "fields"),
    [
        ("faithfulness", ["truths", "claims", "verdicts"]),
        ("answer_relevance", ["statements", "verdicts"]),
        ("context_precision", ["verdicts"]),
        ("context_recall", ["verdicts"]),
        ("context_relevance", ["verdicts", "verdicts"]),
        ("hallucination", ["verdicts"]),
    ],
)
async def test_every_prompt_names_the_field_of_its_reply_and_no_other(
    profile: str, metric: str, fields: list[str]
) -> None:
    calls = canned()
    await measured(metric, profile, calls)
    named = [
        [name for name in ("truths", "claims", "statements", "verdicts") if f'"{name}"' in prompt]
        for prompt in calls.prompts
    ]
    assert named == [[field] for field in fields]


async def test_verdicts_stand_with_the_claims_they_are_about() -> None:
    calls = canned(claims='{"claims": ["a", "b", "c", "d"]}', verdicts=said("yes", "maybe", "no"))
    run = await metric_of(METRICS, "faithfulness", "deepeval-4").run(record(), calls, NO_REASON)
    assert [(verdict.claim.text, verdict.label) for verdict in run.verdicts] == [
        ("a", VerdictLabel.SUPPORTED),
        ("b", VerdictLabel.UNJUDGED),
        ("c", VerdictLabel.CONTRADICTED),
        ("d", VerdictLabel.UNJUDGED),
    ]


async def test_chunks_are_judged_by_all_their_statements() -> None:
    calls = canned(ctx_verdicts=[said("yes", "no"), said("no"), said("yes"), said()])
    run = await metric_of(METRICS, "context_relevance", "deepeval-4").run(
        record(contexts=("a", "b", "c", "d")), calls, NO_REASON
    )
    assert [(verdict.chunk_id, verdict.label.value) for verdict in run.chunk_verdicts] == [
        ("chunk-0", "partly_relevant"),
        ("chunk-1", "irrelevant"),
        ("chunk-2", "relevant"),
        ("chunk-3", "unjudged"),
    ]


async def test_explanations_hold_no_text_under_judgment() -> None:
    calls = canned(claims='{"claims": ["secret"]}', verdicts=said(entry("no", reason="secret")))
    run = await metric_of(METRICS, "faithfulness", "deepeval-4").run(
        record(answer="secret", contexts=("secret",)), calls, NO_REASON
    )
    assert run.explanation == "0 of 1 verdicts agree with the context"


async def test_an_error_says_which_reply_could_not_be_read() -> None:
    run = await metric_of(METRICS, "faithfulness", "deepeval-4").run(
        record(), canned(claims="I cannot help with that."), NO_REASON
    )
    assert run.explanation.startswith("the reply to `claims`: it holds no JSON object")
