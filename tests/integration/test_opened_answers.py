"""The same answer shows the same claims and evidence, wherever it is opened: store, back end or file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from ragtrace.answer_sources import SearchProgress, find_answers, open_source, store_source
from ragtrace.answers.port import AnswerSource, AnswerVersion, OpenedAnswer
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.backends import open_carrier_sink
from ragtrace.backends.tempo import TempoReader
from ragtrace.model import MetricResult
from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.store.reader import StoreReader
from ragtrace_collector.store.sqlite import SqliteFile
from tests.backends.jaeger_server import Jaeger
from tests.backends.phoenix_server import Phoenix
from tests.backends.process import eventually
from tests.backends.tempo_server import Tempo
from tests.integration.collector.running import carriers_in, config_of, post, running_collector, until
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

METRICS = [
    *("faithfulness", "groundedness", "chunk_precision", "answer_relevance", "context_recall"),
    "rag_score",
]
FACTS = [f"Article {number} costs {number + 1} euros. 商品。" for number in range(6)]
ANSWER = " ".join([*FACTS[:4], *(fact.replace("costs", "weighs") for fact in FACTS[4:])])
_numbers = count(time.time_ns() % 10**12 * 1_000)


def the_spans(service: str) -> tuple[Span, ...]:
    """Make a trace with ids of its own, which just happened."""
    start_ns = (time.time_ns() - 20 * 10**9) // 1_000_000 * 1_000_000
    spans = rag_trace(next(_numbers), chunks=FACTS, answer=ANSWER, service=service, start_ns=start_ns)
    named = {span.span_id: f"{next(_numbers):016x}" for span in spans}
    return tuple(
        replace(span, span_id=named[span.span_id], parent_span_id=named.get(span.parent_span_id or ""))
        for span in spans
    )


async def judged(folder: Path, spans: Sequence[Span], *, mode: str = "append") -> tuple[Span, ...]:
    """Let a collector judge an answer, and return what it sends."""
    number = len(spans) if mode == "hold" else 1
    config = config_of(
        folder,
        evaluate={"metrics": METRICS},
        attach={"mode": mode},
        export=[{"endpoint": f"otlp-file:{folder / 'out.jsonl'}", "forward": mode == "hold"}],
    )
    async with running_collector(config) as collector:
        assert (await post(collector, encode(spans))).status_code == 200
        await until(lambda: len(carriers_in(folder / "out.jsonl")) == number)
        return tuple(carriers_in(folder / "out.jsonl"))


def key_of(carrier: Span) -> AnswerKey:
    return AnswerKey(carrier.trace_id, carrier.parent_span_id or carrier.span_id)


def send(url: str, spans: Sequence[Span]) -> None:
    headers = {"content-type": "application/x-protobuf"}
    httpx.post(f"{url}/v1/traces", content=encode(spans), headers=headers).raise_for_status()


async def opened(source: AnswerSource, key: AnswerKey) -> OpenedAnswer:
    async with aclosing(source):
        return await source.open(key)


def shown(answer: OpenedAnswer) -> dict[str, Any]:
    """Return everything that a person sees of claims and evidence."""
    record = answer.record
    return {
        "question": record.question,
        "answer": record.answer,
        "chunks": [(chunk.id, chunk.text, chunk.score) for chunk in record.chunks],
        "versions": [
            (
                *(version.evaluation_id, version.is_valid, version.judged.supersedes),
                *(version.judged.evaluation, version.judged.sample, version.judged.cost_usd),
                version.notices,
            )
            for version in answer.versions
        ],
        "notices": answer.notices,
    }


def of_store(folder: Path) -> AnswerSource:
    reader = StoreReader(SqliteFile(folder / "store.db"))
    return store_source(reader, reader.kept, name="store")


async def test_answer_shows_the_same_claims_and_evidence_wherever_it_is_opened(
    jaeger: Jaeger, tempo: Tempo, tmp_path: Path
) -> None:
    spans = the_spans("opened-everywhere")
    (carrier,) = await judged(tmp_path, spans)
    key = key_of(carrier)
    (tmp_path / "traces.jsonl").write_text(encode_json((*spans, carrier)))
    for url in (jaeger.otlp_http, tempo.otlp_http):
        send(url, (*spans, carrier))
    jaeger.wait_for_trace(key.trace_id, spans=4)
    tempo.wait_for_trace(key.trace_id, spans=4)

    expected = await opened(of_store(tmp_path), key)
    (version,) = expected.versions
    labels = [verdict.label for verdict in version.judged.evaluation.results[0].verdicts]
    assert len(set(labels)) > 1
    assert version.notices == ()
    for source in (
        open_source(f"file:{tmp_path / 'traces.jsonl'}"),
        open_source(f"jaeger:{jaeger.query_url}"),
        open_source(f"tempo:{tempo.url}"),
    ):
        assert shown(await opened(source, key)) == shown(expected), source.name

    query = '{ resource.service.name = "opened-everywhere" && link.opentracing.ref_type = "child_of" }'
    now_s = time.time_ns() // 10**9
    (found,) = eventually(
        lambda: tempo.search(query, start_s=now_s - 300, end_s=now_s + 60), what="the link in Tempo"
    )
    assert found["traceID"].zfill(32) == key.trace_id
    async with aclosing(TempoReader(tempo.url)) as reader:
        stored = await reader.get(key.trace_id)
    assert stored is not None
    returned = stored.find(carrier.span_id)
    assert returned is not None
    assert replace(returned, flags=carrier.flags) == carrier


async def test_phoenix_shows_the_same_claims_and_evidence(phoenix: Phoenix, tmp_path: Path) -> None:
    spans = the_spans("opened-phoenix")
    (carrier,) = await judged(tmp_path, spans)
    (tmp_path / "traces.jsonl").write_text(encode_json((*spans, carrier)))
    phoenix.store([*spans, carrier], project="opened")
    expected = shown(await opened(open_source(f"file:{tmp_path / 'traces.jsonl'}"), key_of(carrier)))
    found = shown(await opened(open_source(f"phoenix:{phoenix.url}"), key_of(carrier)))
    assert found == expected


async def test_scores_in_phoenix_show_the_same_claims_and_evidence(phoenix: Phoenix, tmp_path: Path) -> None:
    spans = the_spans("scores-phoenix")
    (carrier,) = await judged(tmp_path, spans)
    (tmp_path / "traces.jsonl").write_text(encode_json((*spans, carrier)))
    phoenix.store(spans, project="scores")
    async with aclosing(open_carrier_sink(f"phoenix:{phoenix.url}")) as sink:
        await sink.send(encode([carrier]))
    (whole,) = (await opened(open_source(f"file:{tmp_path / 'traces.jsonl'}"), key_of(carrier))).versions
    (found,) = (await opened(open_source(f"phoenix:{phoenix.url}"), key_of(carrier))).versions
    for metric in METRICS:
        assert result_of(found, metric) == result_of(whole, metric)
    assert (found.evaluation_id, found.judged.cost_usd) == (carrier.span_id, None)
    assert found.notices == (
        "This place keeps scores, not the whole carrier: tokens and cost of the run are missing",
    )


def result_of(version: AnswerVersion, metric: str) -> MetricResult:
    """Return a result, without what is on the carrier's span only."""
    (result,) = (result for result in version.judged.evaluation.results if result.metric == metric)
    return replace(result, diagnosis=None)


async def found(address: str, **options: Any) -> tuple[list[AnswerSummary], SearchProgress]:
    told: list[SearchProgress] = []
    until_ns = time.time_ns() + 10**9
    since_ns = until_ns - 120 * 10**9
    search = find_answers(address, since_ns=since_ns, until_ns=until_ns, on_progress=told.append, **options)
    return [summary async for summary in search], told[-1]


@pytest.mark.parametrize("mode", ["append", "hold"])
async def test_judged_answers_are_found_in_every_back_end(
    jaeger: Jaeger, tempo: Tempo, tmp_path: Path, mode: str
) -> None:
    service = f"found-{mode}"
    spans = the_spans(service)
    sent = await judged(tmp_path, spans, mode=mode)
    others = the_spans(service)
    everything = (*spans, *others, *sent) if mode == "append" else (*others, *sent)
    (tmp_path / "traces.jsonl").write_text(encode_json(everything))
    for url in (jaeger.otlp_http, tempo.otlp_http):
        send(url, everything)
    eventually(lambda: len(jaeger.search(service)) == 2, what="the traces in Jaeger")
    query = f'{{ resource.service.name = "{service}" }}'
    now_s = time.time_ns() // 10**9
    eventually(
        lambda: len(tempo.search(query, start_s=now_s - 120, end_s=now_s + 2, limit=9)) == 2,
        what="the traces in Tempo",
    )
    (expected,), _ = await found(f"file:{tmp_path / 'traces.jsonl'}")
    assert expected.key.trace_id == spans[0].trace_id
    for address in (f"jaeger:{jaeger.query_url}", f"tempo:{tempo.url}"):
        summaries, progress = await found(address, service=service)
        assert set(summaries) == {expected}, address
        assert (progress.is_done, progress.notices) == (True, ())
        assert expected in (await found(address))[0], f"{address} of every service"
