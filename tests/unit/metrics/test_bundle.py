"""Two steps that show the same chunks ask a language model in one request, and are checked as ever."""

from __future__ import annotations

import pytest

from ragtrace.errors import JudgeError
from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import GivenGrade, GivenVerdict, RetrievalInput, RetrievalReply
from ragtrace.metrics import StepLimits
from ragtrace.metrics.settings import VerifySettings
from ragtrace.model import Chunk, Evaluation, JudgeIdentity, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeReply, JudgeRequest

RECORD = RagRecord(
    id="r",
    question="How long do refunds take, and who pays?",
    chunks=(
        Chunk(id="refunds", text="Refunds take 14 days.", rank=0),
        Chunk(id="history", text="The shop was founded in 1987.", rank=1),
    ),
    answer="Refunds take 14 days.",
    reference="Refunds take 14 days. The shop pays the postage.",
)
LIMITS = StepLimits(verify=VerifySettings(sentinel_rate=0.0))


class ModelJudge(ScriptedJudge):
    """Answers bundles too, and counts as a language model."""

    def __init__(self, *, bundles: JudgeError | None = None, says: RetrievalReply | None = None) -> None:
        super().__init__()
        self.bundles = bundles
        self.says = says

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(provider="openai", model="scripted")

    async def ask(self, request: JudgeRequest[RetrievalReply]) -> JudgeReply[RetrievalReply]:  # type: ignore[override]
        if request.step == "retrieval":
            self.requests.append(request)
            if self.bundles:
                raise self.bundles
            return JudgeReply(value=self.says or sane_reply(), usage=self._usage(request, sane_reply()))
        if request.step == "chunks":
            self.requests.append(request)
            return JudgeReply(
                value=request.reply_type.model_validate({"chunks": grades()}),
                usage=self._usage(request, sane_reply()),
            )
        return await super().ask(request)


def grades() -> list[GivenGrade]:
    return [GivenGrade(id=1, reason="", relevance=2), GivenGrade(id=2, reason="", relevance=0)]


def sane_reply() -> RetrievalReply:
    held = GivenVerdict(id=1, chunks=[1], quote="Refunds take 14 days", label="supported", reason="")
    lost = GivenVerdict(id=2, chunks=[], quote="", label="not_mentioned", reason="nothing on postage")
    return RetrievalReply(chunks=grades(), verdicts=[held, lost])


async def judged(judge: ScriptedJudge, limits: StepLimits = LIMITS) -> Evaluation:
    return await evaluate(RECORD, metrics=["context_precision", "context_recall"], judge=judge, limits=limits)


def scores(evaluation: Evaluation) -> list[float | None]:
    return [result.score for result in evaluation.results]


async def test_one_request_grades_the_chunks_and_looks_the_reference_up() -> None:
    judge = ModelJudge()
    assert scores(await judged(judge)) == [1.0, 0.5]
    assert judge.calls == {"retrieval": 1}
    given = judge.requests[0].inputs
    assert isinstance(given, RetrievalInput)
    assert [claim.text for claim in given.claims] == ["Refunds take 14 days.", "The shop pays the postage."]
    assert judge.requests[0].user.count("The shop was founded in 1987.") == 1


@pytest.mark.parametrize("limits", [LIMITS, StepLimits(retrieval="separate", verify=LIMITS.verify)])
async def test_bundled_or_not_the_same_verdicts_give_the_same_scores(limits: StepLimits) -> None:
    assert scores(await judged(ModelJudge(), limits)) == [1.0, 0.5]


async def test_what_comes_missing_is_asked_for_by_its_own_step() -> None:
    says = RetrievalReply(chunks=grades()[:1], verdicts=sane_reply().verdicts[:1])
    judge = ModelJudge(says=says)
    assert scores(await judged(judge)) == [1.0, 0.5]
    assert judge.calls == {"retrieval": 1, "chunks": 1, "recall": 1}
