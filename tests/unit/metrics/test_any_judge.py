"""Laws that hold whatever a judge says."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import ExtractReply, VerifyReply
from ragtrace.metrics import StepLimits
from ragtrace.model import Chunk, MetricFailure, RagRecord, VerdictLabel
from ragtrace.pipeline.evaluation import evaluate
from ragtrace.ports import JudgeRequest

CHUNKS = ("Refunds take 14 days.", "Shipping is free in Europe, in 2024.", "Refunds take 30 days in Asia.")
ANSWER = "Refunds take 14 days. Shipping is free.\n- It was so in 2024!"
RECORD = RagRecord(
    id="r",
    question="How long?",
    chunks=tuple(Chunk(id=f"c{n}", text=text, rank=n) for n, text in enumerate(CHUNKS)),
    answer=ANSWER,
)

_numbers = st.integers(1, 5)
_extract_replies = st.fixed_dictionaries(
    {
        "claims": st.lists(
            st.fixed_dictionaries(
                {
                    "id": _numbers,
                    "sentence_ids": st.lists(_numbers, max_size=3),
                    "text": st.sampled_from(["Refunds take 14 days.", "Free.", " ", "退款"])
                    | st.text(max_size=9),
                    "kind": st.sampled_from(["factual", "factual", "opinion", "meta", "refusal"]),
                    "relevance": st.just("direct"),
                }
            ),
            max_size=5,
        ),
        "refusal": st.booleans(),
    }
).map(ExtractReply.model_validate)
_quotes = st.sampled_from([*CHUNKS, "14 DAYS", "4 days", "in 20", "“free  in Europe”", "invented", "…", ""])
_verify_replies = st.fixed_dictionaries(
    {
        "verdicts": st.lists(
            st.fixed_dictionaries(
                {
                    "id": _numbers,
                    "chunks": st.lists(_numbers, max_size=3),
                    "quote": _quotes | st.text(max_size=9),
                    "label": st.sampled_from(["supported", "contradicted", "not_mentioned"]),
                    "reason": st.text(max_size=5),
                }
            ),
            max_size=6,
        )
    }
).map(VerifyReply.model_validate)
_failures = st.sampled_from([JudgeNonsense("what?"), JudgeCutOff("cut")])


def _in_turn(replies: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(replies | replies | replies | _failures, min_size=1, max_size=4)


def _judge(extract: list[Any], verify: list[Any]) -> ScriptedJudge:
    waiting = {"extract": cycle(extract), "verify": cycle(verify)}

    def respond(request: JudgeRequest[Any]) -> BaseModel:
        reply = next(waiting[request.step])
        if isinstance(reply, Exception):
            raise reply
        return cast(BaseModel, reply)

    return ScriptedJudge(respond)


# drawn beforehand: hypothesis ends a draw by raising, which no task of ours may see
judges = st.builds(_judge, _in_turn(_extract_replies), _in_turn(_verify_replies))
"""Judges that say anything in the right form, and sometimes fail."""


@settings(deadline=None)
@given(judges, st.sampled_from([StepLimits(), StepLimits(context_chars=40, claims_per_call=2)]))
def test_evidence_is_verbatim_counts_add_up_and_scores_are_shares(
    judge: ScriptedJudge, limits: StepLimits
) -> None:
    [outcome] = asyncio.run(evaluate(RECORD, judge=judge, limits=limits)).outcomes
    if isinstance(outcome, MetricFailure):
        assert outcome.error_type in ("judge_nonsense", "judge_cut_off")
        return
    texts = {chunk.id: chunk.text or "" for chunk in RECORD.chunks}
    for verdict in outcome.verdicts:
        assert set(verdict.chunk_ids) <= texts.keys()
        assert verdict.quote_verified == (verdict.quote is not None)
        assert verdict.quote is None or verdict.quote in texts[verdict.chunk_ids[0]]
        assert not (verdict.label is VerdictLabel.UNSUPPORTED and verdict.chunk_ids)
        assert ANSWER[verdict.claim.start : verdict.claim.end].strip()
    assert [verdict.claim.index for verdict in outcome.verdicts] == list(range(len(outcome.verdicts)))
    assert outcome.counts.total == len(outcome.verdicts)
    assert (outcome.score is None) == (outcome.skip_reason is not None)
    assert (outcome.counts.judged > 0) == (outcome.score is not None or outcome.skip_reason == "undecided")
    assert outcome.score is None or outcome.score == outcome.counts.supported / outcome.counts.judged
    assert all(0 <= outcome.details.get(name, 0) <= 1 for name in ("lenient", "lower_bound", "coverage"))
    assert 0 <= outcome.details.get("sentence_coverage", 0) <= 1
    assert outcome.usage.calls == len(judge.requests)
