from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ragtrace.errors import ConfigError, JudgeCompromised, JudgeUnable
from ragtrace.judge import CacheFile, CacheSettings, ScriptedJudge, cached
from ragtrace.judge_forms import GivenVerdict, VerifyInput, VerifyReply, YesNoInput
from ragtrace.metrics import StepLimits
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import VerifyForm, VerifySettings
from ragtrace.metrics.verify import Verification
from ragtrace.model import Chunk, JudgeIdentity, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest, YesProbability

CHUNKS = ("Refunds take 14 days. The shop sends them to your card.", "Shipping is free in Europe.")
RIGHT, WRONG, ELSEWHERE = "Refunds take 14 days.", "Refunds take 30 days.", "The shop sells hats."
ODDS = {(RIGHT, "support"): 0.9, (WRONG, "support"): 0.1, (WRONG, "contradict"): 0.8}
"""What the model says of claims and questions; of others, that no is nearly certain."""

LOGPROBS = VerifySettings(form=VerifyForm.LOGPROBS, sentinel_rate=0)
Probability = Callable[[YesNoInput], float]


class Model(ScriptedJudge):
    """Says yes with a probability, and counts as a language model; the rest it answers by script."""

    def __init__(self, p_yes: Probability | Exception, *, name: str = "m") -> None:
        self._honest = ScriptedJudge()
        self._name = name
        self._p_yes = p_yes
        super().__init__(self._answer)

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(provider="model", model=self._name)

    def _answer(self, request: JudgeRequest[Any]) -> Any:
        if not isinstance(request.inputs, YesNoInput):
            return self._honest.reply_to(request)
        if isinstance(self._p_yes, Exception):
            raise self._p_yes
        return YesProbability(p_yes=self._p_yes(request.inputs))

    @property
    def questions(self) -> list[YesNoInput]:
        return [request.inputs for request in self.requests if isinstance(request.inputs, YesNoInput)]


def by_odds(asked: YesNoInput) -> float:
    return ODDS.get((asked.claim, asked.question), 0.02)


def record(*claims: str, chunks: tuple[str, ...] = CHUNKS) -> RagRecord:
    return RagRecord(
        id="r",
        question="How long?",
        chunks=tuple(Chunk(id=f"c{n}", text=text, rank=n) for n, text in enumerate(chunks)),
        answer=" ".join(claims),
    )


async def verified(
    judge: ScriptedJudge, given: RagRecord, settings: VerifySettings = LOGPROBS, **limits: Any
) -> Verification:
    return await StepSession(given, judge, limits=StepLimits(verify=settings, **limits)).verify()


async def test_p_yes_gives_three_labels_with_their_probability() -> None:
    found = await verified(Model(by_odds), record(RIGHT, WRONG, ELSEWHERE))
    assert [verdict.label for verdict in found.verdicts] == ["supported", "contradicted", "unsupported"]
    assert [verdict.confidence for verdict in found.verdicts] == pytest.approx([0.9, 0.9 * 0.8, 0.98 * 0.98])
    assert found.form == "logprobs"


async def test_a_claim_that_a_chunk_says_word_for_word_is_quoted() -> None:
    [verdict] = (await verified(Model(by_odds), record(RIGHT))).verdicts
    assert (verdict.quote, verdict.chunk_ids, verdict.quote_verified) == (
        "Refunds take 14 days",
        ("c0",),
        True,
    )


async def test_without_log_probabilities_auto_asks_for_json() -> None:
    settings = VerifySettings(calibrated=VerifyForm.LOGPROBS)
    judge = Model(JudgeUnable("judge m: it gives no log-probabilities"))
    found = await verified(judge, record(RIGHT), settings)
    assert (found.form, found.verdicts[0].label) == ("json", "supported")


async def test_without_log_probabilities_what_was_asked_for_is_a_failure_that_says_so() -> None:
    judge = Model(JudgeUnable("judge m: it gives no log-probabilities"))
    evaluation = await evaluate(record(RIGHT), judge=judge, limits=StepLimits(verify=LOGPROBS))
    [failure] = evaluation.failures
    assert failure.error_type == "judge_unable"
    assert "`json` or `auto`" in failure.message


async def test_auto_asks_for_json_unless_a_calibration_found_the_other_better() -> None:
    assert (await verified(Model(by_odds), record(RIGHT), VerifySettings())).form == "json"
    calibrated = VerifySettings(calibrated=VerifyForm.LOGPROBS, sentinel_rate=0)
    assert (await verified(Model(by_odds), record(RIGHT), calibrated)).form == "logprobs"


@pytest.mark.parametrize("p_yes", [0.0, 1.0])
async def test_a_judge_that_says_the_same_to_every_question_is_compromised(p_yes: float) -> None:
    settings = VerifySettings(form=VerifyForm.LOGPROBS)
    with pytest.raises(JudgeCompromised):
        await verified(Model(lambda asked: p_yes), record(RIGHT), settings)


async def test_a_second_look_at_probabilities_takes_the_mean_over_both_orders() -> None:
    def by_order(asked: YesNoInput) -> float:
        return (0.9 if asked.chunks[0].number == 2 else 0.4) if asked.question == "support" else 0.0

    judge = Model(by_order)
    settings = VerifySettings(form=VerifyForm.LOGPROBS, sentinel_rate=0, second_look=True)
    [verdict] = (await verified(judge, record(ELSEWHERE), settings)).verdicts
    assert (verdict.label, verdict.confidence) == ("supported", pytest.approx(0.65))
    assert [[chunk.number for chunk in asked.chunks] for asked in judge.questions] == [[1, 2], [2, 1]]


def second_look(*, quote: str) -> ScriptedJudge:
    """Find nothing at first, and everything at a second look, with this quote."""

    def respond(request: JudgeRequest[Any]) -> Any:
        if request.step != "verify":
            return ScriptedJudge().reply_to(request)
        given = cast(VerifyInput, request.inputs)
        again = "second time" in request.system
        label: Any = "supported" if again else "not_mentioned"
        return VerifyReply(
            verdicts=[
                GivenVerdict(id=c.number, chunks=[2] if again else [], quote=quote, label=label, reason="")
                for c in given.claims
            ]
        )

    return ScriptedJudge(respond)


@pytest.mark.parametrize(("quote", "label"), [("free in Europe", "supported"), ("invented", "unsupported")])
async def test_a_second_look_finds_support_only_with_a_quote(quote: str, label: str) -> None:
    judge = second_look(quote=quote)
    settings = VerifySettings(second_look=True)
    [verdict] = (await verified(judge, record("Nobody pays for parcels."), settings)).verdicts
    assert verdict.label == label
    shown = [[c.number for c in request.inputs.chunks] for request in judge.requests[1:]]
    assert shown == [[1, 2], [2, 1]]


@pytest.mark.parametrize("wrong", [{"threshold": 1.2}, {"sentinel_rate": -0.1}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="give 0 to 1"):
        VerifySettings(**wrong)  # type: ignore[arg-type]


async def test_what_was_measured_of_a_judge_does_not_hold_for_the_second() -> None:
    def to_everything(asked: YesNoInput) -> float:
        return 1.0

    second = Model(by_odds, name="second")
    settings = VerifySettings(calibrated=VerifyForm.LOGPROBS, threshold=0.3)
    limits = StepLimits(verify=settings)
    evaluation = await evaluate(record(RIGHT), judge=Model(to_everything), second_judge=second, limits=limits)
    assert evaluation.results[0].score == 1
    assert second.questions == []


async def test_a_verdict_given_without_canaries_is_no_verdict_for_a_record_with_them(tmp_path: Path) -> None:
    model = Model(lambda asked: 0.9)  # yes to everything, canaries included
    guarded = VerifySettings(form=VerifyForm.LOGPROBS)

    async def judged(settings: VerifySettings) -> Verification:
        judge = cached(model, CacheFile(CacheSettings(path=tmp_path / "judge.db")))
        try:
            limits = StepLimits(verify=settings)
            return await StepSession(record(WRONG), judge, limits=limits).verify()
        finally:
            await judge.aclose()

    for _ in range(2):
        with pytest.raises(JudgeCompromised):
            await judged(guarded)
    assert WRONG not in [asked.claim for asked in model.questions]
    assert (await judged(LOGPROBS)).verdicts[0].label == "supported"
    model._p_yes = lambda asked: 0.1 if asked.claim in (WRONG, *invented(model)) else 0.9
    assert (await judged(guarded)).verdicts[0].label != "supported"


def invented(model: Model) -> list[str]:
    said = "".join(CHUNKS)
    return [asked.claim for asked in model.questions if asked.claim not in said]
