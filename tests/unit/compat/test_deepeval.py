"""deepeval's rules, as 3.9.9 and 4.3.1 showed them when they were run on the same replies."""

from __future__ import annotations

import json
from typing import Any

from ragtrace.compat.deepeval import METRICS
from ragtrace.compat.tool import ToolOptions
from ragtrace.model import Direction, VerdictLabel
from tests.unit.compat.double import NO_REASON, CannedCalls, metric_of, outcome, record

Reported = tuple[str, float | None]
ERROR: Reported = ("error", None)
ALL, HALF, NONE = (("ok", share) for share in (1.0, 0.5, 0.0))
PROFILES = ("deepeval-3", "deepeval-4")
DEFAULTS = {
    "truths": '{"truths": ["t"]}',
    "claims": '{"claims": ["c1", "c2"]}',
    "statements": '{"statements": ["s1", "s2"]}',
    "verdicts": '{"verdicts": [{"verdict": "yes", "reason": "r", "statement": "s"}]}',
    "ctx_verdicts": '{"verdicts": [{"verdict": "yes", "reason": "r", "statement": "s"}]}',
    "reason": '{"reason": "because"}',
}


def said(*verdicts: object) -> str:
    """Return a reply with these words, or entries."""
    entries = [verdict if isinstance(verdict, dict) else entry(verdict) for verdict in verdicts]
    return json.dumps({"verdicts": entries})


def entry(word: object, **fields: object) -> dict[str, object]:
    return {"verdict": word, "reason": "r", "statement": "s"} | fields


def canned(**replies: str | list[str]) -> CannedCalls:
    given: dict[str, Any] = DEFAULTS | replies
    return CannedCalls({step: [text] if isinstance(text, str) else text for step, text in given.items()})


async def measured(
    metric: str, profile: str, calls: CannedCalls, options: ToolOptions = NO_REASON, **parts: Any
) -> Reported:
    return outcome(await metric_of(METRICS, metric, profile).run(record(**parts), calls, options))


async def by_both(metric: str, **replies: Any) -> list[Reported]:
    return [await measured(metric, profile, canned(**replies)) for profile in PROFILES]


async def test_a_reason_costs_one_more_call_and_an_unreadable_one_the_score() -> None:
    for profile in PROFILES:
        for metric, asked in [
            ("faithfulness", ["truths", "claims", "verdicts", "reason"]),
            ("answer_relevance", ["statements", "verdicts", "reason"]),
            ("context_precision", ["verdicts", "reason"]),
            ("context_recall", ["verdicts", "reason"]),
            ("context_relevance", ["ctx_verdicts", "ctx_verdicts", "reason"]),
            ("hallucination", ["verdicts", "reason"]),
        ]:
            calls, options = canned(), ToolOptions(include_reason=True)
            assert (await measured(metric, profile, calls, options))[0] == "ok"
            assert calls.asked == asked
            assert await measured(metric, profile, canned(reason="Because."), options) == ERROR, metric


async def test_every_list_is_asked_for_before_one_of_them_is_read() -> None:
    for profile in PROFILES:
        calls = canned(truths="no json")
        assert await measured("faithfulness", profile, calls) == ERROR
        assert calls.asked == ["truths", "claims"]
        calls = canned(ctx_verdicts=["no json", said("yes")])
        assert await measured("context_relevance", profile, calls) == ERROR
        assert calls.asked == ["ctx_verdicts", "ctx_verdicts"]


async def test_lists_of_texts_are_taken_as_they_come_but_statements_must_be_a_list() -> None:
    for truths, expected in {"[]": ALL, '["t", null]': ERROR, "null": ERROR, '"a text"': ALL}.items():
        reply = f'{{"truths": {truths}}}'
        assert await by_both("faithfulness", truths=reply) == [expected] * 2, reply
    for claims, expected in {"null": ERROR, "3": ERROR, '"a text"': ALL, "{}": ALL, "[null]": ALL}.items():
        reply = f'{{"claims": {claims}}}'
        assert await by_both("faithfulness", claims=reply) == [expected] * 2, reply
    for stated, expected in {"[]": ALL, "null": ERROR, '"a text"': ERROR, "{}": ERROR}.items():
        reply = f'{{"statements": {stated}}}'
        assert await by_both("answer_relevance", statements=reply) == [expected] * 2, reply


async def test_json_is_read_from_the_first_brace_to_the_last() -> None:
    yes_no = said("yes", "no")
    for reply, expected in [
        (yes_no, HALF),
        (f"Here you go:\n```json\n{yes_no}\n```\nHope it helps", HALF),
        (yes_no[:-1], ERROR),
        (yes_no.replace("}", ", }"), HALF),
        (yes_no + yes_no, ERROR),
        (f"{yes_no} a closing }} brace", ERROR),
        (f"\ufeff{yes_no}", HALF),
        (yes_no.replace('"', "'"), ERROR),
        ("I cannot help with that.", ERROR),
        ("null", ERROR),
        ('{"x": ' + "[" * 100_000, ERROR),
        ('{"x": 1' + "0" * 5_000 + "}", ERROR),
    ]:
        assert await by_both("faithfulness", verdicts=reply) == [expected] * 2, reply[:99]
    # in 4 a reply without the field `verdicts` is a reply with an empty list
    assert await by_both("faithfulness", verdicts=yes_no.upper()) == [ERROR, ALL]
    assert (await by_both("faithfulness", truths='{"truths": ["t"]'))[1] == ALL


async def test_foreign_words_are_an_error_in_3_and_dropped_in_4() -> None:
    understood = {"YES": HALF, "No, it contradicts the context": NONE, "  yes\n": HALF, "borderline": HALF}
    for word, four in understood.items():
        assert await by_both("faithfulness", verdicts=said(word, "no")) == [ERROR, four], word
    for dropped in ("maybe", "ja", "**yes**", "yesterday", "", None, True, 1, ["yes"]):
        assert await by_both("faithfulness", verdicts=said(dropped, "no")) == [ERROR, NONE], dropped
    assert await by_both("faithfulness", verdicts=said("idk", "no")) == [HALF, HALF]
    assert (await by_both("faithfulness", verdicts=said("maybe", "perhaps")))[1] == ALL
    not_looked_at = said(entry("maybe", reason=5), "yes")
    assert (await by_both("context_precision", verdicts=not_looked_at))[1] == ALL


async def test_metrics_of_the_context_count_a_foreign_word_as_a_no_in_3() -> None:
    for metric, word, three in [
        ("context_precision", "YES", ALL),
        ("context_precision", "maybe", HALF),
        ("context_recall", " yes ", HALF),
        ("context_recall", "idk", HALF),
        ("context_relevance", "Yes.", HALF),
        ("context_relevance", 1, ERROR),
        ("hallucination", "YES", ERROR),
    ]:
        reply = said(word, "yes")
        assert await by_both(metric, verdicts=reply, ctx_verdicts=reply) == [three, ALL], (metric, word)


async def test_what_is_no_list_of_objects() -> None:
    for expected, lists in (
        ([ALL, ALL], ("[]", "{}", '""')),
        ([ERROR, ALL], ("null", "0", '[{"Verdict": "yes"}]')),
        ([ERROR, ERROR], ("5", '"yes"', '["yes"]', "[null]", '{"0": {"verdict": "yes"}}')),
    ):
        for listed in lists:
            assert await by_both("faithfulness", verdicts=f'{{"verdicts": {listed}}}') == expected, listed


async def test_what_a_verdict_must_have_beside_its_word() -> None:
    for reason, expected in [(None, "ok"), ("", "ok"), (5, "error")]:
        reply = said(entry("yes", reason=reason))
        assert [status for status, _ in await by_both("faithfulness", verdicts=reply)] == [expected] * 2
    for metric in ("context_precision", "context_recall", "hallucination"):
        for reason in (None, 5, ["r"]):
            assert await by_both(metric, verdicts=said(entry("yes", reason=reason))) == [ERROR] * 2
    bare = '{"verdicts": [{"verdict": "yes"}]}'
    assert await by_both("context_relevance", ctx_verdicts=bare) == [ERROR] * 2


def test_hallucination_says_which_way_is_good() -> None:
    assert metric_of(METRICS, "hallucination", "deepeval-3").direction is Direction.LOWER_IS_BETTER
    assert metric_of(METRICS, "hallucination", "deepeval-4").direction is Direction.HIGHER_IS_BETTER


async def test_a_missing_part_is_an_error_without_a_call() -> None:
    for profile in PROFILES:
        missing: list[tuple[str, dict[str, Any]]] = [
            ("faithfulness", {"answer": ""}),
            ("faithfulness", {"question": None}),
            ("answer_relevance", {"answer": ""}),
            ("context_precision", {"reference": None}),
            ("context_recall", {"reference": None}),
            ("context_relevance", {"question": None}),
            ("hallucination", {"answer": ""}),
        ]
        for metric, parts in missing:
            calls = canned()
            assert await measured(metric, profile, calls, **parts) == ERROR
            assert calls.asked == []
        assert (await measured("faithfulness", profile, canned(), answer=" "))[0] == "ok", profile
        assert (await measured("faithfulness", profile, canned(), contexts=()))[0] == "ok", profile
        assert (await measured("context_recall", profile, canned(), reference=""))[0] == "ok", profile


async def test_the_limit_of_truths_is_asked_for_and_not_enforced() -> None:
    for limit, wording in [
        (None, "all undisputed facts"),
        (1, "single most"),
        (4, "the 4 most"),
        (-2, "the 0 most"),
    ]:
        calls = canned(truths='{"truths": ["t1", "t2", "t3", "t4", "t5"]}')
        await measured("faithfulness", "deepeval-4", calls, ToolOptions(truths_extraction_limit=limit))
        assert wording in calls.prompts[0], limit
        assert "t5" in calls.prompts[2], limit


async def test_verdicts_stand_with_the_claims_they_are_about() -> None:
    calls = canned(claims='{"claims": ["a", "b", "c", "d"]}', verdicts=said("yes", "maybe", "no"))
    run = await metric_of(METRICS, "faithfulness", "deepeval-4").run(record(), calls, NO_REASON)
    assert [(verdict.claim.text, verdict.label) for verdict in run.verdicts] == [
        ("a", VerdictLabel.SUPPORTED),
        ("b", VerdictLabel.UNJUDGED),
        ("c", VerdictLabel.CONTRADICTED),
        ("d", VerdictLabel.UNJUDGED),
    ]


async def test_explanations_hold_no_text_under_judgment_and_name_the_reply_that_cannot_be_read() -> None:
    faithfulness = metric_of(METRICS, "faithfulness", "deepeval-4")
    calls = canned(claims='{"claims": ["secret"]}', verdicts=said(entry("no", reason="secret")))
    run = await faithfulness.run(record(answer="secret", contexts=("secret",)), calls, NO_REASON)
    assert run.explanation == "0 of 1 verdicts agree with the context"
    run = await faithfulness.run(record(), canned(claims="I cannot help with that."), NO_REASON)
    assert run.explanation.startswith("the reply to `claims`: it holds no JSON object")
