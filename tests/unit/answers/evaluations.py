"""Hypothesis strategies for evaluations, with a record that has their evidence."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from ragtrace.model import (
    Chunk,
    ChunkVerdict,
    Claim,
    Compat,
    CompatStatus,
    Diagnosis,
    Direction,
    Evaluation,
    Intermediate,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    SkipReason,
    StepRun,
    Usage,
    Verdict,
    VerdictLabel,
    content_sha256,
    evaluator_set_of,
    version_of_set,
)
from tests.unit.traces.builders import START_NS, a_target

ANSWER = "Orders can be returned within 30 days. 退货需要五天。 Refunds take 5 working days." * 4
CHUNKS = tuple(
    Chunk(id=f"faq-{rank}", text=f"Rule {rank}: within {rank} days, 五天.", rank=rank) for rank in range(40)
)
SUPPORT = (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED, VerdictLabel.UNJUDGED)
RELEVANCE = (
    VerdictLabel.RELEVANT,
    VerdictLabel.PARTLY_RELEVANT,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.UNJUDGED,
)
JUDGE = JudgeIdentity(provider="openai", model="gpt-4o-mini")
SECOND = JudgeIdentity(provider="lexical", model="lexical", computes=True)
METRICS = ("faithfulness", "groundedness", "hallucination", "my metric")

words = st.text(st.sampled_from('aZ0.é漢😀\n"\\ '), min_size=1, max_size=30)
fractions = st.floats(0, 1)
counts = st.integers(0, 10**9)
usages = st.builds(Usage, input_tokens=counts, output_tokens=counts)
used = st.builds(
    Usage, calls=counts, input_tokens=counts, output_tokens=counts, unmetered_calls=st.integers(0, 3)
)
steps = st.lists(st.builds(StepRun, step=words, duration_ms=counts, usage=used), max_size=4).map(tuple)
asked = st.lists(st.tuples(words, st.none() | fractions), min_size=1, max_size=9)
intermediates = st.one_of(
    st.none(),
    st.builds(
        Intermediate,
        truths=st.lists(words, min_size=1, max_size=9).map(tuple),
        truths_limit=st.none() | st.integers(0, 99),
    ),
    asked.map(
        lambda pairs: Intermediate(
            questions=tuple(a for a, _ in pairs), similarities=tuple(b for _, b in pairs)
        )
    ),
)


class Judged(NamedTuple):
    """An evaluation and its record."""

    evaluation: Evaluation
    record: RagRecord


@st.composite
def claims(draw: st.DrawFn, index: int) -> Verdict:
    cited = tuple(f"faq-{rank}" for rank in draw(st.lists(st.integers(0, 39), max_size=3, unique=True)))
    quote = f"within {cited[0].removeprefix('faq-')} days" if cited and draw(st.booleans()) else None
    label = draw(st.sampled_from(SUPPORT))
    is_flaw = label in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
    return Verdict(
        claim=Claim(index=index, text=draw(words), start=2 * index, end=2 * index + draw(st.integers(1, 90))),
        label=label,
        material=not is_flaw or draw(st.booleans()),
        reason=draw(st.none() | words),
        chunk_ids=cited,
        quote=quote,
        quote_verified=quote is not None,
        confidence=draw(st.none() | fractions),
    )


def graded(rank: int) -> st.SearchStrategy[ChunkVerdict]:
    return st.builds(
        ChunkVerdict,
        chunk_id=st.just(f"faq-{rank}"),
        rank=st.just(rank),
        label=st.sampled_from(RELEVANCE),
        reason=st.none() | words,
        confidence=st.none() | fractions,
    )


@st.composite
def results(
    draw: st.DrawFn, metric: str, pool: tuple[Verdict, ...], chunks: tuple[ChunkVerdict, ...]
) -> MetricResult:
    score = draw(st.none() | fractions)
    rule = draw(st.none() | st.just("contradicted == 0"))
    return MetricResult(
        metric=metric,
        profile=draw(st.sampled_from(("ragtrace", "ragas"))),
        score=score,
        threshold=None if rule else draw(fractions),
        pass_when=rule,
        passed=draw(st.booleans()) if rule and score is not None else None,
        direction=draw(st.sampled_from(Direction)),
        evaluator_version=draw(st.sampled_from(("1", "2"))),
        skip_reason=draw(st.sampled_from(SkipReason)) if score is None else None,
        explanation=draw(words),
        verdicts=tuple(verdict for verdict in pool if draw(st.booleans())) if score is not None else (),
        chunk_verdicts=chunks if score is not None and draw(st.booleans()) else (),
        details=draw(st.dictionaries(st.sampled_from(("lenient", "coverage")), fractions)),
        prompt_sha256=draw(st.none() | st.just("ab" * 32)),
        usage=draw(usages),
        compat=draw(
            st.none() | st.builds(Compat, status=st.sampled_from(CompatStatus), score=st.none() | fractions)
        ),
        intermediate=draw(intermediates),
        duration_ms=draw(counts),
        steps=draw(steps),
        judge=draw(st.none() | st.just(SECOND)),
    )


def failures(metric: str) -> st.SearchStrategy[MetricFailure]:
    return st.builds(
        MetricFailure,
        metric=st.just(metric),
        profile=st.just("ragtrace"),
        error_type=st.sampled_from(("judge_timeout", "judge_refused")),
        message=words,
        evaluator_version=st.just("1"),
        usage=usages,
        duration_ms=counts,
        steps=steps,
    )


@st.composite
def judged(draw: st.DrawFn, *, max_claims: int = 6) -> Judged:
    pool = tuple(draw(claims(index)) for index in range(draw(st.integers(0, max_claims))))
    chunks = tuple(draw(graded(rank)) for rank in range(draw(st.integers(0, 4))))
    outcomes: list[MetricOutcome] = [
        draw(results(metric, pool, chunks) | failures(metric))
        for metric in draw(st.lists(st.sampled_from(METRICS), min_size=1, max_size=5))
    ]
    if draw(st.booleans()):
        outcomes.append(
            MetricResult(
                metric="rag_score",
                profile="ragtrace",
                score=draw(fractions),
                threshold=0.5,
                direction=Direction.HIGHER_IS_BETTER,
                evaluator_version="1",
                explanation="a composite",
                diagnosis=draw(st.sampled_from(Diagnosis)),
            )
        )
    record = RagRecord(
        id="6b5c:03", question="How long?", chunks=CHUNKS, answer=ANSWER, target=a_target(), model="gpt-4o"
    )
    return Judged(
        Evaluation(
            record_id=record.id,
            outcomes=tuple(outcomes),
            judge=JUDGE,
            evaluator_set=evaluator_set_of((outcome.metric, outcome.profile) for outcome in outcomes),
            evaluator_version=version_of_set([outcome.evaluator_version for outcome in outcomes]),
            run_id="run-1",
            started_at_ns=START_NS + draw(st.integers(0, 10**12)),
            duration_ms=draw(st.integers(0, 10**6)),
            input_sha256=content_sha256(record),
            input_truncated=draw(st.booleans()),
            usage=draw(st.builds(Usage, **{name: st.integers(0, 10**9) for name in _COUNTS})),
            compromised=draw(st.booleans()),
        ),
        record,
    )


_COUNTS = ("calls", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "unmetered_calls")
