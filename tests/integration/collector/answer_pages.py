"""The page of one answer over HTTP, on ports in memory, and judged answers of a hand-made trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from starlette.testclient import TestClient

from ragtrace.answers.carrier import open_answer
from ragtrace.answers.port import AnswerGone, AnswerVersion, OpenedAnswer
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import (
    Chunk,
    ChunkVerdict,
    Claim,
    Direction,
    Evaluation,
    JudgedAnswer,
    JudgeIdentity,
    MetricFailure,
    MetricResult,
    RagRecord,
    Sample,
    Target,
    Usage,
    Verdict,
    VerdictLabel,
    content_sha256,
)
from ragtrace.reviews import Review, ReviewFile
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.trace import Span, Trace
from tests.integration.collector.ui_pages import Pages, grant
from tests.rag_spans import START_NS, rag_trace

QUESTION = "How long do refunds take?"
ANSWER = "Refunds take 30 days. Shipping is free."
CHUNKS = ("Refunds take 14 days.", "Shipping is free from $50.", "Our shop is in Bern.")
KEY = AnswerKey("0" * 31 + "1", "00000000000000a1")
PATH = f"/answers/{KEY.trace_id}/{KEY.span_id}"


@dataclass
class MemorySource:
    """A place with these answers."""

    answers: dict[AnswerKey, OpenedAnswer]
    failure: Exception | None = None
    name: str = "memory:test"

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        if self.failure:
            raise self.failure
        if key not in self.answers:
            raise AnswerGone(f"{self.name} has no trace {key.trace_id}")
        return self.answers[key]

    async def aclose(self) -> None:
        pass


def answer_client(
    *opened: OpenedAnswer,
    rows: Sequence[AnswerSummary] = (),
    failure: Exception | None = None,
    reviews: ReviewFile | None = None,
    links: Mapping[str, str] | None = None,
    tenant: str | None = None,
) -> TestClient:
    """Return a reader of the pages over these answers and rows."""
    pages = Pages(
        rows=rows,
        grants=[grant("rt_tenant", tenant=tenant)] if tenant else (),
        source=MemorySource({answer.key: answer for answer in opened}, failure),
        views=reviews,
        links=links or {},
    )
    return pages.client(headers={"authorization": "Bearer rt_tenant"} if tenant else {})


_VOID = frozenset({"meta", "link", "input", "rect", "br"})


class AnswerHtml(HTMLParser):
    """A page, parsed: its tags with their attributes, and its texts. Every tag has to be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.of: dict[str, str] = {}
        """The text of each element that has an id."""
        self._open: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        """All that is shown, white space made one."""
        return " ".join(" ".join(self.texts).split())

    @property
    def ids(self) -> list[str]:
        """All ids, in order."""
        return [found for _, attributes in self.elements if (found := attributes.get("id")) is not None]

    @property
    def hrefs(self) -> list[str]:
        """The targets of all links."""
        return [found for _, attributes in self.elements if (found := attributes.get("href")) is not None]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append((tag, dict(attrs).get("id") or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        for _, name in self._open:
            if name:
                self.of[name] = self.of.get(name, "") + data


def a_verdict(
    text: str,
    label: VerdictLabel = VerdictLabel.SUPPORTED,
    *,
    of: str = ANSWER,
    index: int = 0,
    chunk_ids: tuple[str, ...] = ("chunk-0",),
    quote: str | None = None,
) -> Verdict:
    """Build a verdict on a claim that is a passage of the answer, if it is there."""
    start = of.find(text)
    return Verdict(
        claim=Claim(
            index=index,
            text=text,
            start=start if start >= 0 else None,
            end=start + len(text) if start >= 0 else None,
        ),
        label=label,
        reason=f"because of {text[:20]}",
        chunk_ids=chunk_ids,
        quote=quote,
        quote_verified=quote is not None,
        confidence=0.9,
    )


WRONG = a_verdict("Refunds take 30 days.", VerdictLabel.CONTRADICTED, quote="Refunds take 14 days")
RIGHT = a_verdict("Shipping is free.", index=1, chunk_ids=("chunk-1",), quote="Shipping is free")


def a_result(*verdicts: Verdict, score: float | None = 0.5, **fields: object) -> MetricResult:
    """Build what the metric faithfulness found."""
    given: dict[str, object] = {
        "metric": "faithfulness",
        "profile": "ragtrace",
        "score": score,
        "threshold": 0.8,
        "direction": Direction.HIGHER_IS_BETTER,
        "evaluator_version": "1",
        "explanation": "1 of 2 claims contradicted",
        "verdicts": verdicts,
        "prompt_sha256": "ab" * 32,
        **fields,
    }
    return MetricResult(**given)  # type: ignore[arg-type]


def an_evaluation(
    *outcomes: MetricResult | MetricFailure,
    record: RagRecord,
    version: str = "1",
    seconds: int = 0,
    model: str = "some-model",
) -> Evaluation:
    """Build an evaluation that was made this long after the answer."""
    return Evaluation(
        record_id=record.id,
        outcomes=tuple(replace(outcome, evaluator_version=version) for outcome in outcomes),
        judge=JudgeIdentity(provider="openai", model=model),
        evaluator_set="faithfulness/ragtrace",
        evaluator_version=version,
        run_id="run",
        started_at_ns=START_NS + seconds * 10**9,
        duration_ms=1_234,
        input_sha256=content_sha256(record),
        usage=Usage(calls=2, input_tokens=1_500, output_tokens=100, cached_tokens=50),
    )


CHUNK_VERDICTS = (
    ChunkVerdict(chunk_id="chunk-0", rank=0, label=VerdictLabel.RELEVANT),
    ChunkVerdict(chunk_id="chunk-2", rank=2, label=VerdictLabel.IRRELEVANT, reason="off the question"),
)


@dataclass(frozen=True, kw_only=True)
class JudgedTrace:
    """A RAG trace with evaluations attached, as a collector leaves it."""

    spans: tuple[Span, ...] = field(
        default_factory=lambda: rag_trace(0, question=QUESTION, chunks=CHUNKS, answer=ANSWER)
    )
    carriers: tuple[Span, ...] = ()

    @property
    def record(self) -> RagRecord:
        (record,) = extract_records(Trace.of(KEY.trace_id, self.spans)).records
        return record

    def judged(
        self,
        *outcomes: MetricResult | MetricFailure,
        version: str = "1",
        seconds: int = 1,
        sample: Sample = Sample(rule="ratio", rate=0.1, probability=0.1),  # noqa: B008  frozen
        cost_usd: float | None = 0.0031,
        model: str = "some-model",
        beside: bool = False,
        **options: bool | int,
    ) -> JudgedTrace:
        """Add an evaluation, which supersedes the one before unless it is ``beside`` it."""
        evaluation = an_evaluation(
            *outcomes, record=self.record, version=version, seconds=seconds, model=model
        )
        added = carrier(
            evaluation,
            self.record,
            sample=sample,
            options=AttachOptions(**options),  # type: ignore[arg-type]
            now_ns=START_NS + 2 * 10**9,
            supersedes=self.carriers[-1].span_id if self.carriers and not beside else None,
            cost_usd=cost_usd,
        )
        return replace(self, carriers=(*self.carriers, added))

    def opened(self, key: AnswerKey = KEY) -> OpenedAnswer:
        trace = Trace.of(KEY.trace_id, (*self.spans, *self.carriers))
        return open_answer(trace, key, ExtractRules(), read_from="jaeger:http://localhost:16686")


def a_judged_trace() -> JudgedTrace:
    """Build a trace whose answer has one wrong and one right claim."""
    return JudgedTrace().judged(a_result(WRONG, RIGHT, chunk_verdicts=CHUNK_VERDICTS))


def from_report(
    *verdicts: Verdict,
    answer: str | None = ANSWER,
    chunks: Sequence[Chunk] | None = None,
    question: str | None = QUESTION,
    **fields: object,
) -> OpenedAnswer:
    """Build an answer of a report: without a trace or a carrier."""
    given = [Chunk(id=f"chunk-{rank}", text=text, rank=rank, score=0.9) for rank, text in enumerate(CHUNKS)]
    record = RagRecord(
        id="row 1",
        question=question,
        chunks=tuple(given if chunks is None else chunks),
        answer=answer,
        target=Target(trace_id=KEY.trace_id, span_id=KEY.span_id, start_ns=START_NS, end_ns=START_NS + 10**9),
        **fields,  # type: ignore[arg-type]
    )
    judged = JudgedAnswer(
        record=record, evaluation=an_evaluation(a_result(*verdicts), record=record), cost_usd=None
    )
    return OpenedAnswer(
        key=KEY,
        record=record,
        versions=(AnswerVersion(judged=judged),),
        trace=None,
        read_from="report.jsonl",
    )


@dataclass
class MemoryReviews:
    """Reviews that were given; the rest of the port is not for this page."""

    reviews: Sequence[Review] = ()

    async def of(self, key: AnswerKey) -> Sequence[Review]:
        return [review for review in self.reviews if review.key == key]
