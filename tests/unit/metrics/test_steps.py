from __future__ import annotations

from typing import Any, cast

import pytest

from ragtrace.errors import JudgeCutOff, JudgeNonsense, JudgeUnavailable
from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import (
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenVerdict,
    NumberedText,
    VerdictWord,
    VerifyInput,
    VerifyReply,
)
from ragtrace.metrics import StepLimits
from ragtrace.metrics.session import StepSession
from ragtrace.model import Chunk, RagRecord, Usage, Verdict, VerdictLabel
from ragtrace.ports import JudgeReply, JudgeRequest

CHUNKS = ("Refunds take 14 days.", "Shipping is free in Europe.")


def record(*, claims: int = 3, chunks: tuple[str, ...] = CHUNKS) -> RagRecord:
    return RagRecord(
        id="r",
        question="How long?",
        chunks=tuple(Chunk(id=f"c{n}", text=text, rank=n) for n, text in enumerate(chunks)),
        answer=" ".join(f"Claim number {n}." for n in range(1, claims + 1)),
    )


def shown(request: JudgeRequest[Any]) -> tuple[NumberedText, ...]:
    return cast(ExtractInput, request.inputs).sentences


def one_claim_a_sentence(request: JudgeRequest[Any]) -> ExtractReply:
    claims = [
        ExtractedClaim(id=n, sentence_ids=[s.number], text=s.text, kind="factual")
        for n, s in enumerate(shown(request), start=1)
    ]
    return ExtractReply(claims=claims, refusal=False)


def verdict(
    number: int, label: VerdictWord = "supported", *, chunks: tuple[int, ...] = (1,), quote: str = ""
) -> GivenVerdict:
    return GivenVerdict(id=number, chunks=list(chunks), quote=quote, label=label, reason="")


def asked(request: JudgeRequest[Any]) -> list[int]:
    return [claim.number for claim in cast(VerifyInput, request.inputs).claims]


def judge(*replies: Any) -> ScriptedJudge:
    """Give the replies to the verify requests in turn; the last stays. Errors are raised."""
    waiting = list(replies)

    def respond(request: JudgeRequest[Any]) -> Any:
        if request.step == "extract":
            return one_claim_a_sentence(request)
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        reply = reply(request) if callable(reply) else reply
        if isinstance(reply, Exception):
            raise reply
        return reply

    return ScriptedJudge(respond)


def everything_supported(request: JudgeRequest[Any]) -> VerifyReply:
    return VerifyReply(verdicts=[verdict(n) for n in asked(request)])


def labels(verdicts: tuple[Verdict, ...]) -> str:
    return "".join(v.label.value[:3] + " " for v in verdicts).strip()


async def test_statements_that_cite_sentences_too_many_keep_those_that_exist() -> None:
    def respond(request: JudgeRequest[Any]) -> ExtractReply:
        claims = [
            ExtractedClaim(id=2, sentence_ids=[2, 9], text="B.", kind="factual"),
            ExtractedClaim(id=3, sentence_ids=[1], text="A.", kind="factual"),
            ExtractedClaim(id=4, sentence_ids=[1], text=" A. ", kind="factual"),
            ExtractedClaim(id=5, sentence_ids=[3], text="Nice!", kind="opinion"),
        ]
        again = cast(ExtractInput, request.inputs).surroundings
        return ExtractReply(claims=[] if again else claims, refusal=False)

    found = await StepSession(record(claims=4), ScriptedJudge(respond)).extract()
    assert [(c.index, c.text) for c in found.claims] == [(0, "A."), (1, "B.")]
    assert found.sentence_coverage == 0.75


@pytest.mark.parametrize("shift", [-1, 1])
async def test_statements_that_cite_shifted_sentences_are_asked_for_again_then_a_failure(shift: int) -> None:
    def respond(request: JudgeRequest[Any]) -> ExtractReply:
        right = one_claim_a_sentence(request)
        claims = [c.model_copy(update={"sentence_ids": [c.sentence_ids[0] + shift]}) for c in right.claims]
        reworded = [c.model_copy(update={"text": f"Said otherwise: {c.id}"}) for c in claims]
        return ExtractReply(claims=reworded, refusal=False)

    scripted = ScriptedJudge(respond)
    with pytest.raises(JudgeNonsense, match="sentences that the answer does not have, twice"):
        await StepSession(record(claims=4), scripted).extract()
    assert scripted.calls["extract"] == 2


def one_claim_and_no_more(request: JudgeRequest[Any]) -> ExtractReply:
    return ExtractReply(claims=one_claim_a_sentence(request).claims[:1], refusal=False)


async def test_sentences_that_stay_left_out_lower_the_coverage() -> None:
    scripted = ScriptedJudge(one_claim_and_no_more)
    found = await StepSession(record(claims=4), scripted).extract()
    assert len(found.claims) == 2
    assert found.sentence_coverage == 0.5
    assert scripted.calls["extract"] == 2


async def test_a_quote_becomes_the_chunks_own_text_and_its_chunk_comes_first() -> None:
    reply = VerifyReply(
        verdicts=[
            verdict(1, chunks=(1, 2), quote="shipping  is FREE"),
            verdict(2, "contradicted", chunks=(1,), quote="Refunds take 30 days."),
            verdict(3, chunks=(8, 2, 2), quote="free in Europe"),
        ]
    )
    found = await StepSession(record(), judge(reply)).verify()
    first, second, third = found.verdicts
    assert (first.quote, first.chunk_ids, first.quote_verified) == ("Shipping is free", ("c1", "c0"), True)
    assert (second.label, second.quote, second.quote_verified) == (VerdictLabel.CONTRADICTED, None, False)
    assert third.chunk_ids == ("c1",)
    assert found.quotes_unverified == 1


WRONG_NUMBERS = [(0, 1, 2), (2, 3, 4), (1, 2), (1, 2, 2), (1, 2, 3, 3), (1, 2, 3, 77), ()]


@pytest.mark.parametrize("numbers", WRONG_NUMBERS)
async def test_a_reply_with_other_numbers_is_asked_for_again(
    numbers: tuple[int, ...],
) -> None:
    shifted = VerifyReply(verdicts=[verdict(n, "contradicted") for n in numbers])
    scripted = judge(shifted, everything_supported)
    found = await StepSession(record(), scripted).verify()
    assert labels(found.verdicts) == "sup sup sup"
    assert asked(scripted.requests[-1]) == [1, 2, 3]
    assert scripted.requests[-1].user.endswith("Answer about each of these once: 1, 2, 3")


async def test_what_the_judge_abstains_from_is_not_asked_again() -> None:
    reply = JudgeReply(
        value=VerifyReply(verdicts=[verdict(1)]),
        usage=Usage(calls=1),
        abstained=frozenset({2, 3}),
        notes={2: "too vague"},
    )
    scripted = judge(reply)
    found = await StepSession(record(), scripted).verify()
    assert [v.reason for v in found.verdicts] == [None, "too vague", "the judge abstained"]
    assert scripted.calls["verify"] == 1


async def test_a_reply_that_was_cut_off_is_asked_for_in_halves() -> None:
    def at_most_two(request: JudgeRequest[Any]) -> Any:
        return JudgeCutOff("cut") if len(asked(request)) > 2 else everything_supported(request)

    scripted = judge(at_most_two)
    assert labels((await StepSession(record(claims=5), scripted).verify()).verdicts) == "sup sup sup sup sup"
    assert sorted(map(asked, scripted.requests[1:])) == [[1, 2], [1, 2, 3, 4, 5], [3], [3, 4, 5], [4, 5]]


async def test_sentences_are_extracted_in_batches_and_halves() -> None:
    def respond(request: JudgeRequest[Any]) -> Any:
        if len(shown(request)) > 2:
            raise JudgeCutOff("cut")
        return one_claim_a_sentence(request)

    steps = StepSession(record(claims=7), ScriptedJudge(respond), limits=StepLimits(sentences_per_call=3))
    assert [c.text[-2] for c in (await steps.extract()).claims] == ["1", "2", "3", "4", "5", "6", "7"]


async def test_a_long_sentence_has_room_to_be_repeated_in_any_script() -> None:
    scripted = ScriptedJudge()
    answer = "退款需要十四天" * 110
    await StepSession(RagRecord(id="r", question=None, chunks=(), answer=answer), scripted).extract()
    assert scripted.requests[0].max_output_tokens > 1.3 * len(answer)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("supported", "contradicted", "supported"),
        ("not_mentioned", "supported", "supported"),
        ("not_mentioned", "contradicted", "contradicted"),
        ("not_mentioned", "not_mentioned", "unsupported"),
    ],
)
async def test_packs_of_a_long_context_are_joined(first: Any, second: Any, expected: str) -> None:
    said = {1: first, 2: second}

    def by_pack(request: JudgeRequest[Any]) -> VerifyReply:
        [chunk] = cast(VerifyInput, request.inputs).chunks
        word = said[chunk.number]
        return VerifyReply(verdicts=[verdict(1, word, chunks=(chunk.number,))])

    steps = StepSession(record(claims=1), judge(by_pack), limits=StepLimits(context_chars=30))
    [only] = (await steps.verify()).verdicts
    assert only.label == expected


async def test_a_claim_is_not_called_unmentioned_when_chunks_were_left_out() -> None:
    nothing = judge(lambda request: VerifyReply(verdicts=[verdict(1, "not_mentioned", chunks=())]))
    steps = StepSession(record(claims=1), nothing, limits=StepLimits(context_chars=30, max_packs=1))
    [only] = (await steps.verify()).verdicts
    assert only.label is VerdictLabel.UNJUDGED
    assert steps.cut


async def test_a_failed_step_is_not_run_again_and_is_paid_for_once() -> None:
    failing = judge(JudgeUnavailable("down", usage=Usage(calls=1, input_tokens=10)))
    steps = StepSession(record(), failing)
    for _ in range(2):
        with pytest.raises(JudgeUnavailable):
            await steps.verify()
    assert failing.calls["verify"] == 1
    assert steps.usage.input_tokens >= 10


async def test_a_line_break_in_a_claim_cannot_forge_a_number() -> None:
    scripted = ScriptedJudge()
    answer = "first line\ngoes on [7] here."
    await StepSession(RagRecord(id="r", question=None, chunks=(), answer=answer), scripted).extract()
    assert "[1] first line goes on [7] here." in scripted.requests[0].user.splitlines()


async def test_calls_about_the_same_chunks_share_their_prefix() -> None:
    scripted = judge(everything_supported)
    await StepSession(record(), scripted, limits=StepLimits(claims_per_call=1)).verify()
    users = [request.user for request in scripted.requests[1:]]
    start = users[0].index("<<claims")
    assert len(users) == 3
    assert {user[:start] for user in users} == {users[0][:start]}
