"""What a judge is asked step by step, and what of its replies is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from ragtrace.errors import ConfigError, JudgeCutOff, JudgeNonsense, JudgeUnavailable
from ragtrace.judge import ScriptedJudge
from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply
from ragtrace.judge_forms import (
    ChunkRelevance,
    ChunksInput,
    ChunksReply,
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenGrade,
    GivenVerdict,
    RetrievalReply,
    VerdictWord,
    VerifyInput,
    VerifyReply,
)
from ragtrace.metrics import Prompts, StepLimits, VerifySettings, metric_named
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import PROMPTS
from ragtrace.model import (
    Chunk,
    JudgeIdentity,
    MetricFailure,
    MetricResult,
    RagRecord,
    Usage,
    Verdict,
)
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeReply, JudgeRequest

CHUNKS = ("Refunds take 14 days.", "Shipping is free in Europe.")


def record(*, claims: int = 3, chunks: tuple[str, ...] = CHUNKS) -> RagRecord:
    return RagRecord(
        id="r",
        question="How long?",
        chunks=tuple(Chunk(id=f"c{n}", text=text, rank=n) for n, text in enumerate(chunks)),
        answer=" ".join(f"Claim number {n}." for n in range(1, claims + 1)),
    )


def one_claim_a_sentence(request: JudgeRequest[Any]) -> ExtractReply:
    shown = cast(ExtractInput, request.inputs).sentences
    claims = [
        ExtractedClaim(id=n, sentence_ids=[s.number], text=s.text, kind="factual")
        for n, s in enumerate(shown, start=1)
    ]
    return ExtractReply(claims=claims, refusal=False)


def verdict(
    number: int, label: VerdictWord = "supported", *, chunks: tuple[int, ...] = (1,), quote: str = ""
) -> GivenVerdict:
    return GivenVerdict(id=number, chunks=list(chunks), quote=quote, label=label, reason="")


def asked(request: JudgeRequest[Any]) -> list[int]:
    return [claim.number for claim in cast(VerifyInput, request.inputs).claims]


def judge(*replies: Any) -> ScriptedJudge:
    """Extract a claim a sentence, else give the replies in turn; the last stays. Errors are raised."""
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


async def test_sentences_that_were_left_out_are_asked_about_once_more_and_lower_the_coverage() -> None:
    def first_of_them(request: JudgeRequest[Any]) -> ExtractReply:
        return ExtractReply(claims=one_claim_a_sentence(request).claims[:1], refusal=False)

    scripted = ScriptedJudge(first_of_them)
    found = await StepSession(record(claims=4), scripted).extract()
    assert [c.text[-2] for c in found.claims] == ["1", "2"]
    assert (found.sentence_coverage, scripted.calls["extract"]) == (0.5, 2)
    assert "[1] Claim number 1." in scripted.requests[1].user


async def test_a_quote_becomes_the_chunks_own_text_and_its_chunk_comes_first() -> None:
    reply = VerifyReply(
        verdicts=[
            verdict(1, chunks=(1, 2), quote="shipping  is FREE"),
            verdict(2, "contradicted", chunks=(1,), quote="Refunds take 30 days."),
            verdict(3, chunks=(8, 2, 2), quote="free in Europe"),
        ]
    )
    found = await StepSession(record(), judge(reply)).verify()
    assert [(v.label.value, v.quote, v.quote_verified, v.chunk_ids) for v in found.verdicts] == [
        ("supported", "Shipping is free", True, ("c1", "c0")),
        ("contradicted", None, False, ("c0",)),
        ("supported", "free in Europe", True, ("c1",)),
    ]
    assert found.quotes_unverified == 1


async def test_a_reply_with_other_numbers_is_asked_for_again() -> None:
    for numbers in [(0, 1, 2), (2, 3, 4), (1, 2), (1, 2, 2), (1, 2, 3, 3), (1, 2, 3, 77), ()]:
        shifted = VerifyReply(verdicts=[verdict(n, "contradicted") for n in numbers])
        scripted = judge(shifted, everything_supported)
        found = await StepSession(record(), scripted).verify()
        assert labels(found.verdicts) == "sup sup sup", numbers
        assert asked(scripted.requests[-1]) == [1, 2, 3]
        assert scripted.requests[-1].user.endswith("Answer about each of these once: 1, 2, 3")


async def test_what_the_judge_abstains_from_is_not_asked_again() -> None:
    value = VerifyReply(verdicts=[verdict(1)])
    reply = JudgeReply(value=value, usage=Usage(calls=1), abstained=frozenset({2, 3}), notes={2: "too vague"})
    scripted = judge(reply)
    found = await StepSession(record(), scripted).verify()
    assert [v.reason for v in found.verdicts] == [None, "too vague", "the judge abstained"]
    assert scripted.calls["verify"] == 1


async def test_replies_that_were_cut_off_are_asked_for_in_halves() -> None:
    def at_most_two(request: JudgeRequest[Any]) -> Any:
        return JudgeCutOff("cut") if len(asked(request)) > 2 else everything_supported(request)

    scripted = judge(at_most_two)
    assert labels((await StepSession(record(claims=5), scripted).verify()).verdicts) == "sup sup sup sup sup"
    assert sorted(map(asked, scripted.requests[1:])) == [[1, 2], [1, 2, 3, 4, 5], [3], [3, 4, 5], [4, 5]]

    def two_sentences(request: JudgeRequest[Any]) -> Any:
        if len(cast(ExtractInput, request.inputs).sentences) > 2:
            raise JudgeCutOff("cut")
        return one_claim_a_sentence(request)

    limits = StepLimits(sentences_per_call=3)
    found = await StepSession(record(claims=7), ScriptedJudge(two_sentences), limits=limits).extract()
    assert [c.text[-2] for c in found.claims] == ["1", "2", "3", "4", "5", "6", "7"]


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
        return VerifyReply(verdicts=[verdict(1, said[chunk.number], chunks=(chunk.number,))])

    steps = StepSession(record(claims=1), judge(by_pack), limits=StepLimits(context_chars=30))
    [only] = (await steps.verify()).verdicts
    assert only.label == expected


async def test_a_claim_is_not_called_unmentioned_when_chunks_were_left_out() -> None:
    nothing = judge(lambda request: VerifyReply(verdicts=[verdict(1, "not_mentioned", chunks=())]))
    steps = StepSession(record(claims=1), nothing, limits=StepLimits(context_chars=30, max_packs=1))
    assert labels((await steps.verify()).verdicts) == "unj"
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


def grade(number: int, relevance: ChunkRelevance = 2) -> GivenGrade:
    return GivenGrade(id=number, reason="", relevance=relevance)


async def test_chunks_are_shuffled_the_same_way_each_time_under_numbers_that_stay() -> None:
    def all_relevant(request: JudgeRequest[Any]) -> ChunksReply:
        chunks = cast(ChunksInput, request.inputs).chunks
        return ChunksReply(chunks=[grade(chunk.number) for chunk in chunks])

    texts = tuple(f"Text number {n}." for n in range(1, 11))
    shown, users = [], []
    for _ in range(2):
        scripted = judge(all_relevant)
        await StepSession(record(chunks=texts), scripted).chunks()
        shown.append([(each.number, each.text) for each in scripted.requests[0].inputs.chunks])  # type: ignore[attr-defined]
        users.append(scripted.requests[0].user)
    assert sorted(shown[0]) == list(enumerate(texts, start=1)) != shown[0]
    assert (shown[0], users[0]) == (shown[1], users[1])


async def test_a_chunk_in_pieces_is_worth_what_its_best_piece_is_and_useless_only_if_all_of_it_is() -> None:
    long, three = record(chunks=(" ".join(f"word{n}" for n in range(20)),)), StepLimits(context_chars=64)
    cases: list[tuple[list[ChunkRelevance], str]] = [([0, 2, 0], "rel"), ([0, 1, 0], "par"), ([0] * 3, "irr")]
    for of_pieces, expected in cases:
        scripted = judge(*(ChunksReply(chunks=[grade(1, relevance)]) for relevance in of_pieces))
        [only] = (await StepSession(long, scripted, limits=three).chunks()).verdicts
        assert (only.label.value[:3], len(scripted.requests)) == (expected, 3)
    one = StepLimits(context_chars=64, max_packs=1)
    [only] = (await StepSession(long, judge(ChunksReply(chunks=[grade(1, 0)])), limits=one).chunks()).verdicts
    assert only.label == "unjudged"


REFERRING = RagRecord(
    id="r",
    question="How long do refunds take, and who pays?",
    chunks=(Chunk(id="a", text="Refunds take 14 days.", rank=0), Chunk(id="b", text="We ship.", rank=1)),
    answer="Refunds take 14 days.",
    reference="Refunds take 14 days. The shop pays.",
)
GRADES = [grade(1), grade(2, 0)]
VERDICTS = [verdict(1, quote="Refunds take 14 days"), verdict(2, "not_mentioned", chunks=())]


class ModelJudge(ScriptedJudge):
    """Says this to a request about grades and the reference at once, and counts as a language model."""

    identity = JudgeIdentity(provider="openai", model="scripted")  # type: ignore[assignment]

    def __init__(self, bundled: RetrievalReply | Exception) -> None:
        super().__init__(self._answer)
        self._bundled = bundled

    def _answer(self, request: JudgeRequest[Any]) -> Any:
        if request.step == "chunks":
            return ChunksReply(chunks=GRADES)
        if request.step != "retrieval":
            return self.reply_to(request)
        if isinstance(self._bundled, Exception):
            raise self._bundled
        return self._bundled


async def test_one_request_grades_the_chunks_and_looks_the_reference_up_and_the_rest_is_asked_for() -> None:
    for bundled, how, calls in [
        (RetrievalReply(chunks=GRADES, verdicts=VERDICTS), "bundled", {"retrieval": 1}),
        (RetrievalReply(chunks=GRADES, verdicts=VERDICTS), "separate", {"chunks": 1, "recall": 1}),
        (
            RetrievalReply(chunks=GRADES[:1], verdicts=VERDICTS[:1]),
            "bundled",
            {"retrieval": 1, "chunks": 1, "recall": 1},
        ),
        (JudgeNonsense("it rambled"), "bundled", {"retrieval": 1, "chunks": 1, "recall": 1}),
    ]:
        judge, verify = ModelJudge(bundled), VerifySettings(sentinel_rate=0.0)
        limits = (
            StepLimits(verify=verify) if how == "bundled" else StepLimits(verify=verify, retrieval="separate")
        )
        metrics = ["context_precision", "context_recall"]
        evaluation = await evaluate(REFERRING, metrics=metrics, judge=judge, limits=limits)
        assert [result.score for result in evaluation.results] == [1.0, 0.5], bundled
        assert judge.calls == calls, bundled
        assert judge.requests[0].user.count("We ship.") == 1, bundled


TWO_GRADES = '{"chunks": [{"id": 1, "reason": "", "relevance": 2}, {"id": 2, "reason": "", "relevance": 0}]}'
TWO_VERDICTS = (
    '{"verdicts": [{"id": 1, "chunks": [1], "quote": "14 days", "label": "supported", "reason": ""},'
    ' {"id": 2, "chunks": [], "quote": "", "label": "not_mentioned", "reason": ""}]}'
)


async def ended(step: str, *texts: str) -> str:
    """Return how a metric ends when the judge writes these texts in turn; the last stays."""
    words, waiting = ScriptedJudge(), list(texts)

    def respond(request: JudgeRequest[Any]) -> Any:
        if request.step != step:
            return words.reply_to(request)
        try:
            return parse_reply(waiting.pop(0) if len(waiting) > 1 else waiting[0], request.reply_type)
        except (InvalidReply, NotJson) as exc:
            raise JudgeNonsense("no reply of this form") from exc

    metric = {"chunks": "chunk_precision", "recall": "context_recall"}[step]
    [outcome] = (await evaluate(REFERRING, metrics=[metric], judge=ScriptedJudge(respond))).outcomes
    if isinstance(outcome, MetricFailure):
        return outcome.error_type
    verdicts = [verdict.label.value for verdict in (*outcome.verdicts, *outcome.chunk_verdicts)]
    return f"{outcome.score} {' '.join(verdicts)}"


async def test_a_grade_in_foreign_words_or_numbers_is_a_failure_and_numbers_of_chunks_are_checked() -> None:
    for grade in ("3", "-1", "1.5", "NaN", "null", "true", '"two"', '"relevant"'):
        assert await ended("chunks", TWO_GRADES.replace('"relevance": 2', f'"relevance": {grade}')) == (
            "judge_nonsense"
        ), grade
    for text in (
        '{"chunks": []}',
        '{"chunks": [{"id": 1, "reason": "", "relevance": 2}]}',
        TWO_GRADES.replace('"id": 1', '"id": 7'),
        TWO_GRADES.replace('"id": 1', '"id": -1'),
        TWO_GRADES.replace('"id": 1', '"id": 2'),
        TWO_GRADES.replace("]}", ', {"id": 3, "reason": "", "relevance": 2}]}'),
    ):
        assert await ended("chunks", text) == "judge_nonsense", text
        assert await ended("chunks", text, TWO_GRADES) == "0.5 relevant irrelevant"


async def test_labels_and_numbers_are_read_as_models_write_them() -> None:
    for label in ("SUPPORTED", "Supported", "entailment"):
        for number in ('"1"', '"claim 1"', "1.0"):
            text = TWO_VERDICTS.replace("supported", label, 1).replace('"id": 1', f'"id": {number}')
            assert await ended("recall", text) == "0.5 supported unsupported", text


MINE = "---\nname: mine\nversion: 7\n---\nSay what the chunks say.\n"


async def run(*metrics: Any) -> tuple[ScriptedJudge, list[MetricResult]]:
    judge = ScriptedJudge()
    evaluation = await evaluate(REFERRING, metrics=metrics, judge=judge)
    assert not evaluation.failures
    return judge, list(evaluation.results)


def test_every_prompt_has_a_header_and_forbids_orders_from_texts() -> None:
    for name in PROMPTS:
        prompt = getattr(Prompts(), name)
        assert (prompt.name, prompt.version.isdecimal()) == (name, True)
        assert "never an instruction" in prompt.text
        assert "---" not in prompt.text


async def test_a_prompt_is_replaced_by_path_or_text_for_one_metric_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_text(MINE)
    judge, [theirs, ours] = await run(metric_named("faithfulness", prompts={"verify": path}), "hallucination")
    systems = [request.system for request in judge.requests if request.step == "verify"]
    assert sorted(systems) == sorted(["Say what the chunks say.", Prompts().verify.text])
    assert judge.calls["extract"] == 1
    assert theirs.prompt_sha256 != ours.prompt_sha256
    _, [by_text] = await run(metric_named("faithfulness", prompts={"verify": MINE}))
    assert by_text.prompt_sha256 == theirs.prompt_sha256
    judge, _ = await run(metric_named("faithfulness", prompts={"verify": "Look closely.\nReply in JSON."}))
    assert judge.requests[-1].system == "Look closely.\nReply in JSON."


def test_a_prompt_that_cannot_be_used_says_why() -> None:
    for prompts, message in [
        ({"verify": "no/such/file.md"}, "cannot be read from 'no/such/file.md': No such file"),
        ({"verify": " \n"}, "the prompt 'verify' is empty"),
        ({"verify": "---\nname: mine\n---\ntext"}, "`name` and `version`"),
        ({"verfy": MINE}, "no prompt 'verfy' here: choose from extract, verify"),
        ({"chunks": MINE}, "no prompt 'chunks' here"),
    ]:
        with pytest.raises(ConfigError, match=message):
            metric_named("faithfulness", prompts=prompts)
