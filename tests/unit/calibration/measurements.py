"""Measurements made up for tests: answers with labels, and what a judge said of them."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.calibration.measurement import CandidateRun, JudgeCandidate, MeasuredAnswer
from ragtrace.judge import ScriptedJudge
from ragtrace.labeled_data import HumanLabel, LabeledAnswer
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import Chunk, Claim, RagRecord, Usage, Verdict, VerdictLabel

S, C, N, U = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)


def labeled(human: str, *, id_: str = "a", file: str = "data.jsonl") -> LabeledAnswer:
    """Return an answer; each letter of ``human`` is a claim: ``s``, ``c`` or ``n``."""
    names = {"s": HumanLabel.SUPPORTED, "c": HumanLabel.CONTRADICTED, "n": HumanLabel.UNSUPPORTED}
    chunks = tuple(Chunk(id=str(at), text=f"Chunk {at}.", rank=at) for at in range(2))
    return LabeledAnswer(
        record=RagRecord(id=id_, question="Q?", chunks=chunks, answer="An answer."),
        claims=tuple(Claim(index=at, text=f"Claim {at} of {id_}.") for at in range(len(human))),
        labels=tuple(names[letter] for letter in human),
        supported=set(human) <= {"s"},
        file=file,
    )


def run(*said: VerdictLabel | float) -> CandidateRun:
    """Return a run; a number is P(yes)."""
    verdicts = [
        Verdict(claim=Claim(index=at, text="?"), label=each)
        if isinstance(each, VerdictLabel)
        else Verdict(
            claim=Claim(index=at, text="?"),
            label=S if each >= 0.5 else N,
        )
        for at, each in enumerate(said)
    ]
    support = tuple(None if isinstance(each, VerdictLabel) else each for each in said)
    return CandidateRun(
        verdicts=tuple(verdicts), support=support, usage=Usage(calls=1, input_tokens=10), seconds=0.5
    )


def measured(
    position: int, human: str, *runs: CandidateRun | Sequence[CandidateRun], file: str = "data.jsonl"
) -> MeasuredAnswer:
    """Return what each candidate made of an answer."""
    return MeasuredAnswer(
        answer=labeled(human, id_=f"a{position}", file=file),
        position=position,
        runs=tuple((each,) if isinstance(each, CandidateRun) else tuple(each) for each in runs),
        end_to_end=(None,) * len(runs),
    )


def candidate(form: VerifyForm = VerifyForm.JSON, *, runs: int = 1) -> JudgeCandidate:
    """Return a candidate that nothing is asked of."""
    return JudgeCandidate(judge=ScriptedJudge(), form=form, runs=runs)
