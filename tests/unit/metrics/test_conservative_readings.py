"""What a claim counts as if the judge gave no usable verdict, or one without evidence."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ragtrace.errors import ConfigError, JudgeCutOff
from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import GivenVerdict, VerifyInput, VerifyReply
from ragtrace.metrics import metric_named
from ragtrace.model import Label, MetricResult, RagRecord, VerdictLabel
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest

CLEAR, BARE, LOST, WRONG = "It takes 14 days.", "It is green.", "It is round.", "It takes 30 days."
RECORD = RagRecord.of(question="How?", contexts=[CLEAR], answer=f"{CLEAR} {BARE} {LOST}")


def reply(request: JudgeRequest[Any]) -> Any:
    """Support two claims, one without evidence; give no whole verdict on the third."""
    if not isinstance(request.inputs, VerifyInput):
        return scripted.reply_to(request)
    if any(claim.text == LOST for claim in request.inputs.claims):
        raise JudgeCutOff("cut off")
    given = {
        CLEAR: ("supported", [1], CLEAR),
        BARE: ("supported", [], ""),
        WRONG: ("contradicted", [1], CLEAR),
    }
    return VerifyReply(
        verdicts=[
            GivenVerdict(id=claim.number, label=cast(Any, label), chunks=chunks, quote=quote, reason="")
            for claim in request.inputs.claims
            for label, chunks, quote in [given[claim.text]]
        ]
    )


scripted = ScriptedJudge()


async def measured(name: str = "faithfulness", record: RagRecord = RECORD, **options: Any) -> MetricResult:
    evaluation = await evaluate(record, metrics=[metric_named(name, **options)], judge=ScriptedJudge(reply))
    (result,) = evaluation.results
    return result


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({}, "supported unjudged unjudged"),
        ({"on_missing": "unsupported"}, "supported unsupported unsupported"),
        ({"require_evidence": False}, "supported supported unjudged"),
        ({"require_evidence": False, "on_missing": "unsupported"}, "supported supported unsupported"),
    ],
)
async def test_claims_count_as_the_options_say(options: dict[str, Any], labels: str) -> None:
    result = await measured(**options)
    assert [verdict.label.value for verdict in result.verdicts] == labels.split()


async def test_the_strictest_reading_fails_what_nobody_showed() -> None:
    strict = await measured(on_missing="unsupported")
    assert (strict.score, strict.label) == (pytest.approx(1 / 3), Label.FAIL)
    versions = {
        (await measured(**options)).evaluator_version.partition("+")[0]
        for options in ({}, {"on_missing": "unsupported"}, {"require_evidence": False})
    }
    assert len(versions) == 3


async def test_hallucination_counts_unsupported_claims_if_asked() -> None:
    record = RagRecord.of(question="How?", contexts=[CLEAR], answer=f"{WRONG} {CLEAR} {LOST}")
    asked = {"on_missing": "unsupported"}
    usual = await measured("hallucination", record, **asked)
    both = await measured("hallucination", record, **asked, count_unsupported=True)
    assert (usual.score, both.score) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert usual.details["ungrounded_share"] == both.score
    assert both.label is Label.FAIL
    none = await measured("hallucination", RagRecord.of(question="?", contexts=[CLEAR], answer=CLEAR))
    assert VerdictLabel.SUPPORTED in {verdict.label for verdict in none.verdicts}


def test_another_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="`on_missing` is unjudged or unsupported, not 'skip'"):
        metric_named("faithfulness", on_missing="skip")
    with pytest.raises(ConfigError, match="unexpected keyword argument 'on_mising'"):
        metric_named("faithfulness", on_mising="unsupported")
