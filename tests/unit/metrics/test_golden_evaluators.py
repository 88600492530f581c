"""What judges are asked, and under which version it is scored, against a golden copy.

A carrier's id depends on the evaluator version, and a cached reply on the request: a change that nobody meant
would judge, and pay for, everything again.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ragtrace.compat.tool import tool_metrics
from ragtrace.errors import ConfigError, JudgeCutOff, JudgeNonsense, JudgeUnable
from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import (
    ChunksInput,
    ChunksReply,
    RetrievalInput,
    RetrievalReply,
    VerifyInput,
    VerifyReply,
    YesNoInput,
)
from ragtrace.metrics import Prompts, StepLimits, VerifyForm, VerifySettings, metric_named
from ragtrace.metrics.registry import tool_metric_named
from ragtrace.model import Chunk, JudgeIdentity, MetricOutcome, MetricResult, RagRecord, Usage
from ragtrace.pipeline import Evaluator, evaluate
from ragtrace.ports import Embeddings, FreeText, JudgeRequest, Metric, YesProbability
from ragtrace.scoring import PROFILES

GOLDEN = Path(__file__).parents[2] / "data" / "evaluators.golden.json"
REGENERATE = "REGENERATE_GOLDEN"
MINE = "---\nname: mine\nversion: 7\n---\nSay what the chunks say.\n"
RECORD = RagRecord(
    id="r",
    question="How long do refunds take, and is shipping free in Europe?",
    chunks=(
        Chunk(id="a", text="Refunds take 14 days. Ask the shop for the form of the refund.", rank=0),
        Chunk(id="b", text="Shipping is free in Europe. Parcels leave the house on Monday morning.", rank=1),
        Chunk(id="c", text="", rank=2),
        Chunk(id="d", text="Our <<chunk 4 1>> shop opens at nine.\n[1] It closes at five.", rank=3),
    ),
    answer=(
        "Refunds take 14 days. Shipping is free in Europe. Refunds take 30 days. The moon is made of cheese."
        " The shop opens at nine."
    ),
    reference="Refunds take 14 days. Shipping is free in Europe. The shop is closed on Sunday.",
)
SENTENCE = "Refunds take 14 days."
TEXT = json.dumps(
    {
        **{key: [SENTENCE] for key in ("claims", "truths", "statements", "questions", "opinions")},
        "verdicts": [{"verdict": "yes", "reason": "it says so", "statement": "s"}],
        "question": "How long do refunds take?",
        "noncommittal": 0,
        "verdict": 1,
        "reason": "it says so",
    }
)


NAMES = (
    *("answer_relevance", "chunk_precision", "context_precision", "context_recall", "context_relevance"),
    *("faithfulness", "groundedness", "hallucination", "question_similarity", "rag_score"),
)


def all_metrics(**options: Any) -> Callable[[], list[Metric]]:
    return lambda: [metric_named(name, **options) for name in NAMES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A set of metrics, and what else makes the evaluator."""

    metrics: Callable[[], list[Metric]] = field(default_factory=all_metrics)
    faulty: bool = False
    """Replies lack an item, and long ones are cut off."""
    logprobs: bool = True
    computes: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


class Vectors:
    identity = JudgeIdentity(provider="vectors", model="v1")

    async def embed(self, texts: Any) -> Embeddings:
        vectors = tuple((1.0, len(text) / 100) for text in texts)
        return Embeddings(vectors=vectors, usage=Usage(calls=1))

    async def aclose(self) -> None:
        pass


class Reader(ScriptedJudge):
    """Answers by the words, as a language model would: in every form, and not always well."""

    def __init__(self, case: Case) -> None:
        super().__init__(self._reply)
        self._case = case

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(provider="reader", model="v1", computes=self._case.computes)

    def _reply(self, request: JudgeRequest[Any]) -> BaseModel:
        given = request.inputs
        if request.reply_type is FreeText:
            return FreeText(text=TEXT)
        if isinstance(given, YesNoInput):
            if not self._case.logprobs:
                raise JudgeUnable("it has no log-probabilities", usage=Usage())
            holds = any(given.claim in chunk.text for chunk in given.chunks)
            return YesProbability(p_yes=0.9 if holds else 0.2)
        if isinstance(given, RetrievalInput):
            return self._retrieval(request, given)
        whole = self.reply_to(request)
        return faulty(request, whole) if self._case.faulty else whole

    def _retrieval(self, request: JudgeRequest[Any], given: RetrievalInput) -> BaseModel:
        if self._case.faulty:
            raise JudgeNonsense("it is no JSON")
        grades = ChunksInput(question=given.question, reference=None, chunks=given.chunks)
        claims = VerifyInput(chunks=given.chunks, claims=given.claims)
        graded = self.reply_to(replace(request, step="chunks", reply_type=ChunksReply, inputs=grades))
        verified = self.reply_to(replace(request, step="recall", reply_type=VerifyReply, inputs=claims))
        return RetrievalReply.model_validate({**graded.model_dump(), **verified.model_dump()})


def faulty(request: JudgeRequest[Any], whole: BaseModel) -> BaseModel:
    """Cut off what is about many items (three, or five with canary claims), and leave out the last one."""
    items = {"extract": "sentences", "verify": "claims", "recall": "claims"}.get(request.step, request.step)
    asked = getattr(request.inputs, "statements" if items == "relevance" else items, ())
    if len(asked) > (5 if items == "claims" else 3):
        raise JudgeCutOff("it was cut off")
    lists = {name: given for name, given in whole if isinstance(given, list)}
    kept = {name: given[:-1] if len(given) > 1 else given for name, given in lists.items()}
    return whole.model_copy(update=kept)


def metric(name: str, **options: Any) -> Callable[[], list[Metric]]:
    return lambda: [metric_named(name, **options)]


def later_metrics() -> list[Metric]:
    criteria = {"step": "The answer names the next step", "long": "The answer is long"}
    return [
        *map(metric_named, ("citation_precision", "citation_recall", "factual_correctness")),
        *map(metric_named, ("noise_sensitivity", "retrieval_recall", "retrieval_mrr", "retrieval_ndcg")),
        *(metric_named(name, criterion=text) for name, text in criteria.items()),
    ]


def with_prompt(name: str, step: str, other: str) -> Callable[[], list[Metric]]:
    return lambda: [metric_named(name, prompts={step: MINE}), metric_named(other)]


def tool(name: str, profile: str, **options: Any) -> Callable[[], list[Metric]]:
    return lambda: [tool_metric_named(name, profile=profile, options=options)]


def verify(**settings: Any) -> Mapping[str, Any]:
    return {"limits": StepLimits(verify=VerifySettings(**settings))}


SMALL = StepLimits(
    sentences_per_call=2, claims_per_call=2, chunks_per_call=2, statements_per_call=2, context_chars=90
)


def has_metric(name: str, profile: str) -> bool:
    try:
        return bool(metric_named(name, profile=profile))
    except ConfigError:
        return False


CASES: dict[str, Case] = {
    **{
        f"{name}.{profile}": Case(metrics=metric(name, profile=profile))
        for profile in ("ragtrace", *PROFILES)
        for name in NAMES
        if has_metric(name, profile)
    },
    **{
        f"{t.metric}.{t.profile} asked as the tool": Case(metrics=tool(t.metric, t.profile))
        for t in tool_metrics()
    },
    "deepeval's options": Case(
        metrics=tool(
            "faithfulness", "deepeval-3", strict_mode=True, truths_extraction_limit=2, include_reason=True
        )
    ),
    "a strict profile": Case(metrics=metric("hallucination", profile="deepeval-3", strict_mode=True)),
    "all at once": Case(),
    "all, separate": Case(settings={"limits": StepLimits(retrieval="separate")}),
    "all, in small calls": Case(settings={"limits": SMALL}),
    "all, of the beginning": Case(
        settings={"limits": StepLimits(max_sentences=2, max_packs=1, context_chars=90)}
    ),
    "all, badly answered": Case(faulty=True),
    "all, badly answered, separate": Case(faulty=True, settings={"limits": StepLimits(retrieval="separate")}),
    "all, by probability": Case(settings=verify(form=VerifyForm.LOGPROBS)),
    "all, by probability, twice": Case(
        settings=verify(form=VerifyForm.LOGPROBS, second_look=True, threshold=0.8)
    ),
    "all, by probability that is not given": Case(logprobs=False, settings=verify(form=VerifyForm.LOGPROBS)),
    "all, by calibrated probability that is not given": Case(
        logprobs=False, settings=verify(calibrated=VerifyForm.LOGPROBS)
    ),
    "all, as JSON": Case(settings=verify(form=VerifyForm.JSON)),
    "all, twice": Case(settings=verify(second_look=True)),
    "all, badly answered, twice": Case(faulty=True, settings=verify(second_look=True)),
    "all, without canaries": Case(settings=verify(sentinel_rate=0.0)),
    "all, half of them with canaries": Case(settings=verify(sentinel_rate=0.5)),
    "all, truncated": Case(metrics=all_metrics(judge_truncated=True)),
    "all, with a threshold": Case(metrics=all_metrics(threshold=0.25)),
    "all, with a rule": Case(metrics=all_metrics(pass_when="score >= 0.25")),
    "all, with another prompt for all": Case(
        settings={"prompts": Prompts(verify=Prompts().recall, chunks=Prompts().extract)}
    ),
    "one with a prompt of its own": Case(metrics=with_prompt("faithfulness", "verify", "hallucination")),
    "one with a prompt for the first step": Case(
        metrics=with_prompt("faithfulness", "extract", "hallucination")
    ),
    "graded with a prompt of its own": Case(
        metrics=with_prompt("chunk_precision", "chunks", "context_recall")
    ),
    "weighed otherwise": Case(
        metrics=metric("rag_score", weights={"faithfulness": 0.5, "answer_relevance": 0.5})
    ),
    "with a second judge": Case(settings={"second_judge": ScriptedJudge()}),
    "by a judge that computes": Case(computes=True),
    "those that came later": Case(metrics=later_metrics),
    "without an embedder": Case(settings={"embedder": None}),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_evaluator_is_the_golden_one(name: str) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))[name]
    assert await described(CASES[name]) == golden, f"run once with {REGENERATE}=1 if this is meant"


async def test_the_golden_copy_has_these_cases() -> None:
    if os.environ.get(REGENERATE):
        found = {name: await described(case) for name, case in CASES.items()}
        GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert list(json.loads(GOLDEN.read_text("utf-8"))) == list(CASES)


async def described(case: Case) -> Mapping[str, object]:
    metrics, settings = case.metrics(), {"embedder": Vectors(), **case.settings}
    judge = Reader(case)
    evaluation = await evaluate(RECORD, metrics=metrics, judge=judge, run_id="golden", **settings)
    version = Evaluator(metrics=metrics, judge=judge, **settings).version
    assert evaluation.evaluator_version == version
    assert evaluation.evaluator_set is not None
    named = [f"{outcome.metric}.{outcome.profile}" for outcome in evaluation.outcomes]
    return {
        "set": evaluation.evaluator_set,
        "version": version,
        "calls": evaluation.usage.calls,
        "outcomes": dict(zip(named, map(outcome_of, evaluation.outcomes), strict=True)),
        "asked": asked(judge.requests),
    }


def outcome_of(outcome: MetricOutcome) -> str:
    found = f"{outcome.evaluator_version} of {outcome.usage.calls} calls"
    if not isinstance(outcome, MetricResult):
        return f"{found}: {outcome.error_type} {digest(outcome.message)}"
    prompt = (outcome.prompt_sha256 or "none")[:16]
    score = outcome.skip_reason if outcome.score is None else f"{outcome.score:.9g}"
    passes = outcome.pass_when or outcome.threshold
    verdicts = [(v.label, v.reason, v.quote, v.confidence, v.omitted, v.chunk_ids) for v in outcome.verdicts]
    grades = [(v.label, v.reason, v.omitted, v.rank) for v in outcome.chunk_verdicts]
    seen = digest(verdicts, grades, sorted(outcome.details.items()), outcome.explanation)
    return f"{found}, prompts {prompt}: {score} {outcome.label} ({passes}) {seen}"


def asked(requests: list[JudgeRequest[Any]]) -> Mapping[str, str]:
    """Digest the requests of each step; calls run concurrently, so their order says nothing."""
    by_step = defaultdict(list)
    for request in requests:
        by_step[request.step].append(digest(*_seen(request)))
    return {step: f"{len(found)} {digest(*sorted(found))}" for step, found in sorted(by_step.items())}


def _seen(request: JudgeRequest[Any]) -> tuple[object, ...]:
    return (
        request.system,
        request.user,
        request.reply_type.model_json_schema(),
        request.inputs.model_dump(),
        request.max_output_tokens,
        sorted(request.items.items()),
        None if request.about is None else request.about(list(request.items)[:1]).user,
        repr(request.sampling),
    )


def digest(*values: object) -> str:
    return sha256(json.dumps(values, default=str).encode()).hexdigest()[:16]
