from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ragtrace.errors import ConfigError, JudgeCutOff
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.judge_forms import VerifyInput
from ragtrace.metrics import Faithfulness, StepLimits, metric_named
from ragtrace.metrics.session import StepSession
from ragtrace.model import (
    Chunk,
    Gap,
    Label,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
)
from ragtrace.pipeline import evaluate, evaluator_version
from ragtrace.ports import JudgeRequest

EINSTEIN = RagRecord(
    id="einstein",
    question="Where and when was Einstein born?",
    chunks=(
        Chunk(id="a", text="Albert Einstein was born in Ulm, Germany."),
        Chunk(id="b", text="He was born on 14 March 1879."),
    ),
    answer="Einstein was born in Ulm on 14 March 1879.",
)


def scripted(**verdicts: Any) -> ScriptedJudge:
    """Script a judge that finds these claims, and says this about each."""
    answers = {EINSTEIN.answer or "": {"claims": list(verdicts)}}
    return ScriptedJudge(Script.model_validate({"answers": answers, "claims": verdicts}))


async def measured(record: RagRecord, judge: Any = None, **settings: Any) -> MetricResult:
    evaluation = await evaluate(record, metrics=[Faithfulness(**settings)], judge=judge or ScriptedJudge())
    [result] = evaluation.results
    return result


@pytest.mark.parametrize(
    ("verdicts", "score", "lenient", "label", "explanation"),
    [
        ("SS", 1.0, 1.0, "pass", "all 2 claims supported"),
        ("SC", 0.5, 0.5, "fail", "1 of 2 claims contradicted"),
        ("SN", 0.5, 1.0, "fail", "1 of 2 claims unsupported"),
        ("NN", 0.0, 1.0, "fail", "2 of 2 claims unsupported"),
        ("SCNN", 0.25, 0.75, "fail", "1 of 4 claims contradicted, 2 unsupported"),
        ("S", 1.0, 1.0, "pass", "1 claim supported"),
    ],
)
async def test_the_score_is_the_share_of_supported_claims(
    verdicts: str, score: float, lenient: float, label: str, explanation: str
) -> None:
    words = {"S": "supported", "C": "contradicted", "N": "not_mentioned"}
    result = await measured(EINSTEIN, scripted(**{f"Claim {n}": words[v] for n, v in enumerate(verdicts)}))
    assert result.score == score
    assert result.details["lenient"] == lenient
    assert (result.label, result.explanation) == (label, explanation)


async def test_a_score_about_little_of_the_answer_says_so() -> None:
    script = Script.model_validate(
        {"answers": {"A one": {"claims": ["A one."]}}, "claims": {"A one.": "supported"}}
    )
    record = replace(EINSTEIN, answer="A one. B two. C three.")
    result = await measured(record, ScriptedJudge(script))
    assert result.explanation == "1 claim supported, drawn from only 33% of the sentences"


async def test_fewer_verdicts_than_claims_never_raise_the_score() -> None:
    words = ScriptedJudge()

    def never_ends_the_third(request: JudgeRequest[Any]) -> Any:
        if isinstance(request.inputs, VerifyInput) and any(c.number == 3 for c in request.inputs.claims):
            raise JudgeCutOff("cut off")
        return words.reply_to(request)

    record = replace(EINSTEIN, answer="He was born on 14 March 1879. He was rich. He was tall.")
    result = await measured(record, ScriptedJudge(never_ends_the_third))
    assert result.score == 0.5
    assert result.details["lower_bound"] == pytest.approx(1 / 3)
    assert result.details["coverage"] == pytest.approx(2 / 3)
    assert result.explanation == "1 of 3 claims unsupported, 1 unjudged"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answer": None}, SkipReason.NO_CONTENT),
        ({"answer": " \n"}, SkipReason.NO_CONTENT),
        ({"chunks": ()}, SkipReason.NO_RETRIEVAL),
        ({"chunks": (Chunk(id="a", text=None),)}, SkipReason.NO_CONTENT),
        ({"chunks": (Chunk(id="a", text="cut of", truncated=True),)}, SkipReason.TRUNCATED),
        (
            {"gaps": (Gap(part=Part.ANSWER, reason=SkipReason.FAILED_CALL, detail="d"),)},
            SkipReason.FAILED_CALL,
        ),
        ({"gaps": (Gap(part=Part.CONTEXT, reason=SkipReason.REDACTED, detail="d"),)}, SkipReason.REDACTED),
        ({"answer": "I cannot answer that question."}, SkipReason.REFUSAL),
        ({"answer": "Here are the dates:"}, SkipReason.NO_CLAIMS),
        ({"answer": "..."}, SkipReason.NO_CLAIMS),
    ],
)
async def test_nothing_to_judge_is_a_reason_and_no_score(changes: dict[str, Any], reason: SkipReason) -> None:
    result = await measured(replace(EINSTEIN, **changes))
    assert (result.score, result.skip_reason, result.label) == (None, reason, Label.SKIPPED)
    assert result.explanation


async def test_truncated_text_is_judged_only_on_request_and_marked() -> None:
    gap = Gap(part=Part.ANSWER, reason=SkipReason.TRUNCATED, detail="cut at 2,048 bytes")
    record = replace(EINSTEIN, gaps=(gap,))
    skipped = await evaluate(record, judge=ScriptedJudge())
    judged = await evaluate(record, metrics=[Faithfulness(judge_truncated=True)], judge=ScriptedJudge())
    assert (skipped.results[0].skip_reason, skipped.input_truncated) == (SkipReason.TRUNCATED, False)
    assert (judged.results[0].skip_reason, judged.input_truncated) == (None, True)
    assert judged.evaluator_version != skipped.evaluator_version


class Broken(Faithfulness):
    """Fails in a way nobody foresaw."""

    name = "broken"

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricResult:
        raise KeyError(record.answer)


async def test_a_broken_metric_fails_alone_and_tells_no_content(caplog: pytest.LogCaptureFixture) -> None:
    evaluation = await evaluate(EINSTEIN, metrics=[Broken(), "faithfulness"], judge=ScriptedJudge())
    [failure] = evaluation.failures
    assert failure.error_type == "KeyError"
    assert "Ulm" not in failure.message + caplog.text
    assert "broken" in caplog.text
    assert len(evaluation.results) == 1


async def test_cancelling_an_evaluation_cancels_it() -> None:
    judge = ScriptedJudge(gate=asyncio.Event())
    task = asyncio.create_task(evaluate(EINSTEIN, judge=judge))
    await judge.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_answer_beyond_the_limits_is_judged_in_part_and_marked() -> None:
    record = replace(EINSTEIN, answer="He was born on 14 March 1879. " * 9)
    evaluation = await evaluate(record, judge=ScriptedJudge(), limits=StepLimits(max_sentences=2))
    assert evaluation.results[0].counts.total == 2
    assert evaluation.input_truncated


async def test_the_input_digest_follows_what_the_judge_sees() -> None:
    other = replace(EINSTEIN, chunks=EINSTEIN.chunks[::-1])
    same = replace(EINSTEIN, id="other", session_id="s")
    digests = [(await evaluate(r, judge="scripted")).input_sha256 for r in (EINSTEIN, other, same)]
    assert digests[0] == digests[2] != digests[1]


def test_the_version_changes_with_whatever_gives_the_result() -> None:
    judge, metric = ScriptedJudge(), Faithfulness()
    base = evaluator_version([metric], judge)
    others = [
        evaluator_version([Faithfulness(threshold=0.7)], judge),
        evaluator_version([metric], LexicalJudge()),
        evaluator_version([metric], judge, limits=StepLimits(claims_per_call=5)),
        evaluator_version([metric, Broken()], judge),
    ]
    assert len({base, *others}) == 5
    assert base == evaluator_version([Faithfulness()], ScriptedJudge())
    assert evaluator_version([metric, Broken()], judge) == evaluator_version([Broken(), metric], judge)


@pytest.mark.parametrize(("name", "profile"), [("faithfullness", "ragtrace"), ("faithfulness", "nobody")])
def test_an_unknown_metric_is_answered_with_those_there_are(name: str, profile: str) -> None:
    with pytest.raises(ConfigError, match=r"choose from.*faithfulness"):
        metric_named(name, profile=profile)
