"""``ragtrace why``: why an answer has a score, or has none, told by the file of a real store."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import Label, Sample, Screening
from ragtrace.traces.otlp import parse_request, split_by_trace
from ragtrace_collector.ledger import State
from ragtrace_collector.sampling import Decision
from ragtrace_collector.store.records import Job, JudgedInput, KeptCarrier
from ragtrace_collector.store.store import Store
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.rag_spans import rag_trace, trace_id_of

TRACE = trace_id_of(0)
ANSWER = rag_trace(0)[0].span_id
SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.25, screening=Screening(0.834, 1.0))
SECOND_NS = 10**9
FIRST, SECOND = f"{0xC1:016x}", f"{0xC2:016x}"


async def receive(store: Store, body: bytes) -> None:
    split = split_by_trace(parse_request(body, encoding="protobuf"), body=body)
    await store.append(split.slices, forward={}, now_ns=time.time_ns())


async def queue(store: Store) -> Job:
    await receive(store, request_of(*rag_trace(0)))
    job = Job(trace_id=TRACE, span_id=ANSWER, sample=SAMPLE, service="shop", tenant="acme")
    await store.decide_trace(TRACE, jobs=[job], outcomes=[], keep_spans=True, now_ns=time.time_ns())
    (leased,) = await store.take_jobs(1, now_ns=time.time_ns())
    assert leased.sample.screening == SAMPLE.screening
    return leased


async def judge(store: Store) -> None:
    await store.finish(
        await queue(store),
        State.JUDGED,
        outbox_items={"grpc://tempo:4317": b"carrier", "http://jaeger:4318": b"carrier"},
        now_ns=time.time_ns(),
        carrier="00f067aa0ba902b7",
        evaluator="e1",
    )


async def test_a_judged_answer_tells_its_rule_its_carrier_and_where_that_is(store: Store, path: Path) -> None:
    await judge(store)
    await store.delivered(await store.outbox_items("grpc://tempo:4317", 1))
    await store.reject(await store.outbox_items("http://jaeger:4318", 1), reason="too large", now_ns=1)
    result = run("why", TRACE, "--from", f"store:{path}")
    told = " ".join(result.output.split())
    assert result.exit_code == 0
    assert f"answer span {ANSWER} (service shop, tenant acme): judged" in told
    assert "chosen by rule ratio: suspicion 0.834, rate 0.5, probability 0.25" in told
    assert "carrier 00f067aa0ba902b7, evaluator e1" in told
    assert "to grpc://tempo:4317: delivered" in told
    assert "to http://jaeger:4318: rejected: too large" in told


async def judge_twice(store: Store) -> None:
    """Judge an answer, and again when late spans changed it: first it passes, then it fails."""
    said = ((FIRST, "lexical:lexical-v4", Label.PASS), (SECOND, "openai:m", Label.FAIL))
    for number, (carrier, name, label) in enumerate(said):
        at = {"time_ns": SECOND_NS, "judged_ns": 2 * SECOND_NS + number}
        told: Any = {"carrier_span_id": carrier, "judge": name, "label": label, **at}
        summary = AnswerSummary(key=AnswerKey(TRACE, ANSWER, "acme"), **told)
        await receive(store, request_of(*rag_trace(0)))
        digest, slices, now_ns = str(number), number + 1, time.time_ns()
        job = Job(trace_id=TRACE, span_id=ANSWER, sample=SAMPLE, tenant="acme", record_sha256=digest)
        jobs = [replace(job, revisions_left=1)]
        await store.decide_trace(TRACE, jobs=jobs, outcomes=[], keep_spans=True, now_ns=now_ns, slices=slices)
        (leased,) = await store.take_jobs(1, now_ns=now_ns)
        judged, kept = JudgedInput(digest, slices), KeptCarrier(summary=summary, payload=b"")
        await store.finish(leased, State.JUDGED, outbox_items={}, now_ns=now_ns, judged=judged, kept=kept)


async def test_a_judged_answer_tells_its_score_and_its_wrong_claims(tmp_path: Path) -> None:
    spans = rag_trace(0, answer="Refunds take 14 days. Shipping takes 3 days.", start_ns=time.time_ns())
    async with running_collector(config_of(tmp_path)) as collector:
        await post(collector, request_of(*spans))
        while not (await collector.pipeline.store.ledger()).ended:  # noqa: ASYNC110 -- a stage's work
            await asyncio.sleep(0.02)
        result = await asyncio.to_thread(run, "why", TRACE, "--from", f"store:{tmp_path}/store.db")
    told = " ".join(result.output.split())
    assert "faithfulness 0.50 fail; 1 of 2 claims wrong" in told
    assert "unsupported: “Shipping takes 3 days.”" in told


async def test_evaluations_that_disagree_are_told_with_their_judges(store: Store, path: Path) -> None:
    await judge_twice(store)
    told = " ".join(run("why", TRACE, "--from", f"store:{path}").output.split())
    assert "disputed: 1 of 2 valid evaluations pass it" in told
    assert "lexical:lexical-v4 says pass" in told
    assert "openai:m says fail" in told
    found = json.loads(run("why", TRACE, "--from", f"store:{path}", "--json").output)["evaluations"]
    told_of = [one["summary"] for one in found]
    assert {(one["carrier_span_id"], one["label"], one["is_disputed"]) for one in told_of} == {
        (FIRST, "pass", True),
        (SECOND, "fail", True),
    }


async def test_a_postponed_answer_tells_the_last_failure_and_the_next_try(store: Store, path: Path) -> None:
    due_ns = time.time_ns() + 600 * SECOND_NS
    await store.postpone(await queue(store), due_ns=due_ns, reason="judge_timeout")
    told = " ".join(run("why", TRACE, "--from", f"store:{path}").output.split())
    assert "postponed, judge_timeout" in told
    assert "-> raise `judge.timeout`" in told
    assert "1 attempt failed, the last by judge_timeout; tried next in 10 min" in told


async def test_an_open_trace_tells_which_spans_it_waits_for(store: Store, path: Path) -> None:
    await receive(store, request_of(*rag_trace(0)[1:]))
    config = path.with_name("collector.yaml")
    config.write_text(f"export: [{{endpoint: 'http://localhost:4317'}}]\nstore: {{path: {path}}}\n")
    told = " ".join(run("why", TRACE, "--config", str(config)).output.split())
    assert f"2 spans came; it waits for its root and 1 parent that spans name ({ANSWER})" in told
    assert re.search(r"if nothing more comes, it is processed in \d+ s", told)


async def test_an_answer_that_was_left_out_tells_by_which_rule(store: Store, path: Path) -> None:
    await receive(store, request_of(*rag_trace(0)))
    left_out = Decision(span_id=ANSWER, sample=SAMPLE, left_out=State.SAMPLED_OUT)
    await store.decide_trace(TRACE, jobs=[], outcomes=[left_out], keep_spans=False, now_ns=time.time_ns())
    told = " ".join(run("why", TRACE, "--from", f"store:{path}").output.split())
    assert "sampled_out no rule chose it" in told.replace(":", "")
    assert "left out by rule ratio: suspicion 0.834, rate 0.5" in told


@pytest.mark.parametrize(
    ("ratio", "told"),
    [(0.0, "head sampling excludes it"), (1.0, "head sampling keeps it"), (None, "--config or --url")],
)
async def test_of_an_unknown_trace_the_possibilities_are_told(
    store: Store, path: Path, ratio: float | None, told: str
) -> None:
    config = path.with_name("collector.yaml")
    config.write_text(
        json.dumps(
            {"export": [{"endpoint": "http://x:1"}], "store": {"path": str(path)}, "sample": {"ratio": ratio}}
        )
    )
    where = ("--from", f"store:{path}") if ratio is None else ("--config", str(config))
    result = run("why", TRACE, *where)
    assert result.exit_code == 1
    assert f"trace {TRACE}: the collector does not know it" in result.output
    assert told in " ".join(result.output.split())


@pytest.mark.parametrize("written", [TRACE[:-1], f"00-{TRACE}-{ANSWER}-01"], ids=["short", "traceparent"])
async def test_ids_are_understood_as_people_have_them(store: Store, path: Path, written: str) -> None:
    await judge(store)
    assert f"trace {TRACE}: 1 answer found" in run("why", written, "--from", f"store:{path}").output


async def test_a_beginning_that_several_traces_share_names_them(store: Store, path: Path) -> None:
    for number in range(2):
        await receive(store, request_of(*rag_trace(number)))
    result = run("why", TRACE[:8], "--from", f"store:{path}")
    assert result.exit_code == 2
    assert f"several traces begin with 00000000: {trace_id_of(0)}, {trace_id_of(1)}" in result.output


async def test_nothing_of_the_content_is_shown(store: Store, path: Path) -> None:
    await judge(store)
    for form in ((), ("--json",)):
        output = run("why", TRACE, "--from", f"store:{path}", *form).output
        assert "efund" not in output
        assert "14 days" not in output


async def test_a_running_collector_tells_the_same_on_its_pages(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        await post(collector, request_of(*rag_trace(0)))
        while not (await collector.pipeline.store.ledger()).outbox_items_in("delivered"):  # noqa: ASYNC110 -- a stage's work
            await asyncio.sleep(0.02)
        url = f"http://127.0.0.1:{collector.operations.port}"
        pages, file = [
            json.loads((await asyncio.to_thread(run, "why", TRACE, "--json", *where)).output)
            for where in (("--from", url), ("--from", f"store:{tmp_path / 'store.db'}"))
        ]
    assert pages["answers"] == file["answers"]
    assert [delivery["state"] for delivery in pages["answers"][0]["deliveries"]] == ["delivered"]
    assert pages["head_sampling"]["is_kept"]


async def test_scores_that_stand_on_the_answer_span_itself_are_told_so(tmp_path: Path) -> None:
    export = [{"endpoint": f"otlp-file:{tmp_path / 'out.jsonl'}", "forward": True}]
    async with running_collector(config_of(tmp_path, export=export, attach={"mode": "hold"})) as collector:
        await post(collector, request_of(*rag_trace(0)))
        while not (await collector.pipeline.store.ledger()).ended:  # noqa: ASYNC110 -- a stage's work
            await asyncio.sleep(0.02)
        told = " ".join(run("why", TRACE, "--from", f"store:{tmp_path / 'store.db'}").output.split())
    assert "its scores are on the answer span itself, which was held back for them" in told
    assert "carrier" not in told


def test_pages_that_are_none_are_named() -> None:
    result = run("why", TRACE, "--from", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "`telemetry.listen`" in result.output
