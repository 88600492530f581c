"""Labeled claims before a judge: it sees contexts and claims, in every order asked for, and nothing else."""

from __future__ import annotations

from typing import Any

from ragtrace.calibration.measurement import JudgeCandidate, MeasuredAnswer, measure_all
from ragtrace.errors import JudgeTimeout
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.judge_forms import YesNoInput
from ragtrace.labeled_data import LabeledAnswer
from ragtrace.metrics.settings import VerifyForm
from ragtrace.ports import JudgeRequest, YesProbability
from tests.unit.calibration.measurements import C, N, S, labeled

JUDGE_SAYS = Script(
    claims={"Claim 0 of a.": "supported", "Claim 1 of a.": "contradicted", "Claim 2 of a.": "not_mentioned"}
)


async def measure(
    judge: ScriptedJudge, *answers: LabeledAnswer, runs: int = 1, end_to_end: bool = False
) -> list[MeasuredAnswer]:
    found: list[MeasuredAnswer] = []
    candidate = JudgeCandidate(judge=judge, form=VerifyForm.JSON, runs=runs, end_to_end=end_to_end)
    await measure_all(answers, [candidate], concurrency=2, seed=0, done=found.append)
    return sorted(found, key=lambda each: each.position)


async def test_each_labeled_claim_gets_its_verdict_without_extraction() -> None:
    judge = ScriptedJudge(JUDGE_SAYS)
    [found] = await measure(judge, labeled("snc"))
    [[run]] = found.runs
    assert [verdict.label for verdict in run.verdicts] == [S, C, N]
    assert judge.calls == {"verify": 1}
    assert run.usage.calls == 1


async def test_further_runs_shuffle_and_verdicts_come_back_in_the_order_of_the_data() -> None:
    judge = ScriptedJudge(JUDGE_SAYS)
    [found] = await measure(judge, labeled("snc"), runs=6)
    assert {tuple(verdict.label for verdict in run.verdicts) for run in found.runs[0]} == {(S, C, N)}
    orders = [[claim.text for claim in request.inputs.claims] for request in judge.requests]  # type: ignore[attr-defined]
    assert orders[0] == ["Claim 0 of a.", "Claim 1 of a.", "Claim 2 of a."]
    assert len(set(map(tuple, orders))) > 2
    chunks = {tuple(chunk.text for chunk in request.inputs.chunks) for request in judge.requests}  # type: ignore[attr-defined]
    assert len(chunks) == 2


async def test_a_failure_is_named_and_the_others_are_measured() -> None:
    def respond(request: JudgeRequest[Any]) -> Any:
        if "of bad" in request.user:
            raise JudgeTimeout("too slow")
        return ScriptedJudge(JUDGE_SAYS).reply_to(request)

    bad, good = await measure(ScriptedJudge(respond), labeled("s", id_="bad"), labeled("s"))
    assert (bad.runs[0][0].failure, bad.runs[0][0].verdicts) == ("judge_timeout", ())
    assert good.runs[0][0].failure is None


async def test_end_to_end_the_judge_words_the_claims_itself() -> None:
    judge = ScriptedJudge(
        Script(
            answers={"An answer": {"claims": ["Claim 0 of a."]}}, **JUDGE_SAYS.model_dump(include={"claims"})
        )
    )
    [found] = await measure(judge, labeled("s"), end_to_end=True)
    assert judge.calls == {"verify": 2, "extract": 1}
    assert found.end_to_end[0] is not None
    assert found.end_to_end[0].score == 1.0


async def test_asked_for_a_yes_the_judge_s_probability_is_kept_beside_the_verdict() -> None:
    says = {"Claim 0 of a.": 0.9, "Claim 1 of a.": 0.2}

    def respond(request: JudgeRequest[Any]) -> Any:
        asked = request.inputs
        assert isinstance(asked, YesNoInput)
        return YesProbability(p_yes=says[asked.claim] if asked.question == "support" else 0.1)

    found: list[MeasuredAnswer] = []
    candidate = JudgeCandidate(judge=ScriptedJudge(respond), form=VerifyForm.LOGPROBS)
    await measure_all([labeled("sn")], [candidate], concurrency=1, seed=0, done=found.append)
    [[run]] = found[0].runs
    assert [verdict.label for verdict in run.verdicts] == [S, N]
    assert run.support == (0.9, 0.2)
