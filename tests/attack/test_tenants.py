"""Two tenants share a collector. Who knows the other's trace id must gain nothing by it (confused deputy)."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode, encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.ledger import State
from ragtrace_collector.service.collector import Collector
from tests.integration.cli.program import run
from tests.integration.collector.running import PROTOBUF, carriers_in, config_of, running_collector
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

INVENTED = "Refunds are paid in gold."
TENANTS = ("acme", "bandit")


def token(tenant: str, may: str = "send") -> str:
    return f"rt_{may}-token-of-{tenant}"


def entry(tenant: str | None, may: str) -> Mapping[str, Any]:
    name = f"{tenant}-{may}"
    digest = hashlib.sha256(token(tenant or "operator", may).encode()).hexdigest()
    return {"name": name, "sha256": digest, "may": [may], **({"tenant": tenant} if tenant else {})}


def shared(folder: Path, **changes: Any) -> CollectorConfig:
    """Return a collector's configuration with a token to send and one to read for each tenant."""
    tokens = [entry(tenant, may) for tenant in TENANTS for may in ("send", "read")]
    return config_of(
        folder, receive={"tokens": [*tokens, entry(None, "read")]}, judge={"use": "lexical"}, **changes
    )


def bearer(tenant: str, may: str = "send") -> dict[str, str]:
    return {"authorization": f"Bearer {token(tenant, may)}"}


async def send(collector: Collector, tenant: str, *spans: Span) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.http_port}") as client:
        answer = await client.post(
            "/v1/traces", content=encode(spans), headers={**PROTOBUF, **bearer(tenant)}
        )
    assert answer.status_code == 200


async def show(collector: Collector, path: str, tenant: str) -> httpx.Response:
    port = collector.operations.port
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        return await client.get(path, headers=bearer(tenant, "read"))


def stolen() -> Span:
    """A span with the ids of acme's root, and another answer on it."""
    return rag_trace(0, answer=INVENTED)[0]


def of_tenant(carriers: Sequence[Span], tenant: str) -> list[Span]:
    return [each for each in carriers if each.resource.attributes.get(semconv.TENANT) == tenant]


async def is_judged(collector: Collector, tenant: str) -> bool:
    ledger = await collector.pipeline.store.ledger()
    return any(
        each.tenant == tenant and each.state is State.JUDGED and each.number for each in ledger.accounts
    )


async def until_judged(collector: Collector, *tenants: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for tenant in tenants:
            while not await is_judged(collector, tenant):  # noqa: ASYNC110 -- a stage's work
                await asyncio.sleep(0.02)


async def until_seen(collector: Collector, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await collector.pipeline.store.ledger()).seen < number:  # noqa: ASYNC110 -- a stage's work
            await asyncio.sleep(0.02)


def verdict(carrier: Span) -> Mapping[str, object]:
    told = ("ragtrace.eval.status", "ragtrace.eval.input_sha256", semconv.TARGET_SPAN_ID)
    scores = {key: value for key, value in carrier.attributes.items() if "score" in key or key in told}
    return {**scores, "id": carrier.span_id, "events": [each.name for each in carrier.events]}


async def test_who_knows_a_trace_id_cannot_own_the_answer_in_it(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    async with running_collector(shared(tmp_path / "alone")) as collector:
        await send(collector, "acme", *rag_trace(0))
        await until_judged(collector, "acme")
    (alone,) = carriers_in(tmp_path / "alone" / "out.jsonl")
    async with running_collector(shared(tmp_path)) as collector:
        await send(collector, "bandit", stolen())
        await send(collector, "acme", *rag_trace(0))
        await until_judged(collector, "acme")
        await until_seen(collector, 2)
        seen = {each.tenant for each in (await collector.pipeline.store.ledger()).accounts if each.number}
    (own,) = of_tenant(carriers_in(tmp_path / "out.jsonl"), "acme")
    assert verdict(own) == verdict(alone)
    assert seen == {"acme", "bandit"}


async def test_held_spans_of_a_tenant_go_on_with_their_own_scores_alone(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    config = shared(
        tmp_path,
        attach={"mode": "hold", "hold_timeout": "20s"},
        assemble={"quiet_period": "300ms", "deadline": "5s"},
        export=[{"endpoint": f"otlp-file:{out}", "forward": True}],
    )
    async with running_collector(config) as collector:
        root, *others = rag_trace(0)
        await send(collector, "acme", *others)
        await send(collector, "bandit", stolen())
        await send(collector, "acme", root)
        await until_judged(collector, "acme")
    spans = carriers_in(out)
    (own,) = [each for each in of_tenant(spans, "acme") if each.span_id == root.span_id]
    assert len(of_tenant(spans, "acme")) == 3
    assert own.attributes[semconv.OUTPUT_MESSAGES] == root.attributes[semconv.OUTPUT_MESSAGES]
    assert own.attributes["ragtrace.eval.status"] == "ok"
    assert all(INVENTED not in str(each.attributes) for each in of_tenant(spans, "acme"))


async def test_a_token_that_reads_for_a_tenant_reads_nothing_of_another(tmp_path: Path) -> None:
    async with running_collector(shared(tmp_path)) as collector:
        await send(collector, "acme", *rag_trace(0))
        await send(collector, "acme", *rag_trace(1))
        await send(collector, "bandit", *rag_trace(2))
        await until_judged(collector, *TENANTS)
        await until_seen(collector, 3)
        pages = {
            (who, path): await show(collector, path, who)
            for who in (*TENANTS, "operator")
            for path in (
                f"/why/{trace_id_of(0)}",
                f"/why/{trace_id_of(2)}",
                "/ledger",
                "/ledger?since_ns=1",
                "/status",
                "/metrics",
            )
        }
        port = collector.http_port
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            beside = await client.get("/status", headers=bearer("bandit", "read"))
    assert len(pages["acme", f"/why/{trace_id_of(0)}"].json()["answers"]) == 1
    assert pages["bandit", f"/why/{trace_id_of(0)}"].json()["answers"] == []
    assert pages["bandit", f"/why/{trace_id_of(0)}"].json()["trace"] is None
    assert len(pages["bandit", f"/why/{trace_id_of(2)}"].json()["answers"]) == 1
    assert len(pages["operator", f"/why/{trace_id_of(0)}"].json()["answers"]) == 1
    for path in ("/ledger", "/ledger?since_ns=1"):
        assert [pages[who, path].json()["seen"] for who in (*TENANTS, "operator")] == [2, 1, 3]
        assert {each["tenant"] for each in pages["bandit", path].json()["accounts"]} == {"bandit"}
        assert pages["bandit", path].json()["outbox_items"] == {}
    assert [pages[who, "/status"].json()["ledger"]["seen"] for who in (*TENANTS, "operator")] == [2, 1, 3]
    assert "since_start" not in pages["bandit", "/status"].json()
    assert beside.json() == pages["bandit", "/status"].json()
    assert [pages[who, "/metrics"].status_code for who in (*TENANTS, "operator")] == [403, 403, 200]


async def test_spans_of_two_tenants_under_one_trace_id_are_kept_apart(tmp_path: Path) -> None:
    waiting = {"assemble": {"quiet_period": "10m", "deadline": "10m"}, "drain_timeout": "0s"}
    async with running_collector(shared(tmp_path, **waiting)) as collector:
        for tenant in TENANTS:
            await send(collector, tenant, *rag_trace(0))
        assert len(await collector.pipeline.store.undecided()) == len(TENANTS)


async def test_one_trace_id_of_two_tenants_is_two_traces_to_the_operator(tmp_path: Path) -> None:
    trace_id = trace_id_of(0)
    config = shared(tmp_path)
    async with running_collector(config) as collector:
        for tenant in TENANTS:
            await send(collector, tenant, *rag_trace(0))
        await until_judged(collector, *TENANTS)
    store = str(config.store.path)
    both = run("why", trace_id, "--from", f"store:{store}", columns=200)
    assert both.exit_code == 2
    assert all(f"{trace_id}@{tenant}" in both.output for tenant in TENANTS)
    told = run("why", f"{trace_id}@acme", "--from", f"store:{store}", columns=200).output
    assert "tenant acme" in told
    assert "tenant bandit" not in told
    explained = await asyncio.to_thread(
        run, "explain", f"{trace_id}@acme", "--from", f"store:{store}", columns=200
    )
    assert explained.exit_code == 0, explained.output


@dataclass(frozen=True, slots=True)
class Token:
    """A sender as the receivers hand it over."""

    tenant: str

    def charge(self, *, spans: int, bytes: int) -> None:  # noqa: A002 -- the port's name
        """Nothing is limited."""


async def hand_over(stepped: Stepped, tenant: str, span: Span) -> None:
    await stepped.collector.pipeline.intake.accept(encode([span]), encoding="protobuf", sender=Token(tenant))


ATTACKS = st.lists(
    st.tuples(
        st.integers(0, 3),  # before which of acme's spans; 3 is after the last
        st.sampled_from(range(3)),  # with the ids of which
        st.sampled_from([INVENTED, "Refunds take 14 days.", ""]),
        st.booleans(),  # as the root
    ),
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(3)), attacks=ATTACKS, restarts=st.booleans())
def test_whatever_another_tenant_sends_the_verdict_is_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    order: Sequence[int],
    attacks: Sequence[tuple[int, int, str, bool]],
    restarts: bool,
) -> None:
    async def carriers(attacked: bool) -> list[Mapping[str, object]]:
        folder = tmp_path_factory.mktemp("law")
        config, spans = shared(folder), rag_trace(0)
        async with stepped_collector(config) as stepped:
            for place in range(4):
                for before, which, text, is_root in attacks if attacked else ():
                    if before == place:
                        forged = rag_trace(0, answer=text)[which]
                        await hand_over(
                            stepped, "bandit", replace(forged, parent_span_id=None) if is_root else forged
                        )
                if place < 3:
                    await hand_over(stepped, "acme", spans[order[place]])
            if not restarts:
                await stepped.pass_time(60)
        async with stepped_collector(config, clock=stepped.clock) as stepped:
            await stepped.pass_time(60)
            found = of_tenant(stepped.carriers(), "acme")
            assert (await stepped.collector.pipeline.store.ledger()).adds_up
        return [verdict(each) for each in found]

    assert asyncio.run(carriers(attacked=True)) == asyncio.run(carriers(attacked=False))


@pytest.mark.parametrize(("tenants", "kept"), [("on nothing", True), ("on carriers", False)])
async def test_who_sends_with_anothers_ids_reads_nothing_of_it_on_any_page(
    tmp_path: Path, kept: bool, tenants: str
) -> None:
    """Applications feed the back end themselves, so that spans there name no tenant, and all the same ids."""
    traces = tmp_path / "traces.jsonl"
    config = shared(
        tmp_path,
        export=[{"endpoint": f"otlp-file:{traces}"}],
        ui={"listen": "127.0.0.1:0", "traces": f"otlp-file:{traces}"},
    )
    own = rag_trace(0, start_ns=time.time_ns())
    traces.write_text(encode_json([owned(span, None) for span in own]) + "\n")
    async with running_collector(config) as collector:
        for tenant in TENANTS:
            forged = rag_trace(
                0, question="What?", chunks=(PARCELS,), answer=PARCELS, start_ns=own[0].start_ns
            )
            await send(collector, tenant, *(own if tenant == "acme" else forged))
            await until_judged(collector, tenant)
    if tenants == "on nothing":
        spans = [span for line in traces.read_text().splitlines() for span in decode_json(line)]
        traces.write_text(encode_json([owned(span, None) for span in spans]) + "\n")
    if not kept:
        with closing(sqlite3.connect(config.store.file)) as db, db:
            db.execute("DELETE FROM slice")
            db.execute("DELETE FROM kept_carrier")
    place = f"{own[0].trace_id}/{own[0].span_id}"
    lists = ("/answers.csv", "/answers.jsonl")
    pages = ["/", "/answers", *lists, f"/answers/{place}", f"/answers/{place}/carrier.json", "/sessions"]
    pages += ["/review", f"/review/{place}", "/review/next", "/review/labels.jsonl"]
    async with running_collector(config) as collector:
        url = f"http://127.0.0.1:{collector.ui.port}"
        async with httpx.AsyncClient(base_url=url, follow_redirects=True) as client:

            async def shown(path: str, who: str) -> str:
                return (await client.get(path, headers=bearer(who, "read"))).text

            for path in pages:
                text = await shown(path, "bandit")
                assert not any(part in text for part in ("14 days", "How long", "refunds")), path
            for path in lists:
                unknown = await shown(f"{path}?text=xyzzy", "bandit")
                for word in ("Refunds", "14", "days", "refunds", "long"):
                    assert await shown(f"{path}?text={word}", "bandit") == unknown, (path, word)
                assert await shown(f"{path}?text=refunds", "acme") != unknown
            assert "How long do refunds take?" in await shown(f"/answers/{place}", "acme")


PARCELS = "Parcels are green."


def owned(span: Span, tenant: str | None) -> Span:
    attributes = {key: value for key, value in span.resource.attributes.items() if key != semconv.TENANT}
    named = {semconv.TENANT: tenant} if tenant else {}
    return replace(span, resource=replace(span.resource, attributes={**attributes, **named}))
