"""Built-in alerts: from judged answers to a webhook, once for each trouble, whatever happens in between."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import StandingClock, Stepped, stepped_collector
from tests.integration.collector.webhook import Webhook, webhook
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

GOOD, BAD = "Refunds take 14 days.", "Penguins founded the company on Mars."
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
SCHEMA = Path(__file__).parents[3] / "docs" / "alert-notice.schema.json"


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as served:
        yield served


def watching(folder: Path, *to: dict[str, Any], **changes: Any) -> CollectorConfig:
    settings: dict[str, Any] = {
        "judge": {"use": "lexical"},
        "slo": [{"name": "faithful", "service": "shop"}],
        "alerts": {"to": [*to]},
        "ui": {"public_url": "https://rag.example", "links": {"Jaeger": "http://jaeger/trace/{trace_id}"}},
    }
    return config_of(folder, **{**settings, **changes})


async def answer(stepped: Stepped, numbers: range, text: str, *, service: str = "shop") -> None:
    for number in numbers:
        await stepped.send(*rag_trace(number, answer=text, service=service))
    await stepped.pass_time(5)
    await stepped.pass_time(5)


async def test_a_broken_objective_is_told_once_and_again_when_it_is_met(
    tmp_path: Path, hook: Webhook
) -> None:
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url})) as stepped:
        await answer(stepped, range(20), GOOD)
        assert hook.notices == []
        await answer(stepped, range(20, 60), BAD)
        await answer(stepped, range(60, 80), BAD)
        (firing,) = hook.notices
        assert (firing["status"], firing["slo"]["name"]) == ("firing", "faithful")
        assert 0 < firing["failing_answers"] <= firing["judged_answers"] <= 20
        assert firing["allowed_share"] == 0.05
        await answer(stepped, range(80, 150), GOOD)
        (_, resolved) = hook.notices
        assert (resolved["status"], resolved["alert_id"]) == ("resolved", firing["alert_id"])
        assert resolved["id"] != firing["id"]
        assert resolved["resolved_at"]


async def test_a_notice_holds_numbers_and_links_and_nothing_of_the_answers(
    tmp_path: Path, hook: Webhook
) -> None:
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url})) as stepped:
        await answer(stepped, range(40), BAD)
    ((_, body),) = hook.requests
    assert not any(word in body for word in (b"Penguins", b"refunds", b"14 days"))
    (notice,) = hook.notices
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(notice)
    assert 1 <= len(notice["worst"]) <= 5
    for worst in notice["worst"]:
        assert worst["url"] == f"https://rag.example/answers/{worst['trace_id']}/{worst['span_id']}"
        assert worst["links"] == {"Jaeger": f"http://jaeger/trace/{worst['trace_id']}"}
        assert worst["score"] == 0


async def test_a_webhook_can_prove_who_sent_a_notice(tmp_path: Path, hook: Webhook) -> None:
    config = watching(tmp_path, {"webhook": hook.url, "secret": SECRET, "headers": {"x-team": "search"}})
    async with stepped_collector(config) as stepped:
        await answer(stepped, range(40), BAD)
    ((headers, body),) = hook.requests
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["x-team"] == "search"
    assert headers["webhook-id"] == json.loads(body)["id"]


async def test_slack_gets_blocks_that_mention_nobody(tmp_path: Path, hook: Webhook) -> None:
    service = "<!channel> & co"
    config = watching(tmp_path, {"slack": hook.url}, slo=[{"name": "faithful", "service": service}])
    async with stepped_collector(config) as stepped:
        await answer(stepped, range(40), BAD, service=service)
    (message,) = hook.notices
    assert message["text"].startswith("faithful is broken: ")
    assert [block["type"] for block in message["blocks"]] == ["section", "section", "context"]
    assert "<!channel>" not in json.dumps(message)
    assert "|Jaeger>" in message["blocks"][1]["text"]["text"]


async def test_an_unreachable_webhook_gets_it_later_and_holds_up_no_carrier(
    tmp_path: Path, hook: Webhook
) -> None:
    hook.statuses = [503, 404, 500]
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url})) as stepped:
        await answer(stepped, range(40), BAD)
        assert len(stepped.carriers()) == 40
        sums = (await stepped.collector.pipeline.store.ledger()).outbox_items["alert:webhook"]
        assert sums["waiting"] == 1
        for _ in range(4):
            await stepped.pass_time(120)
        assert [notice["status"] for notice in hook.notices] == ["firing"] * 4
        assert len({notice["id"] for notice in hook.notices}) == 1
        sums = (await stepped.collector.pipeline.store.ledger()).outbox_items["alert:webhook"]
        assert (sums["waiting"], sums["delivered"]) == (0, 1)


async def test_a_killed_collector_goes_on_counting_and_tells_nothing_twice(
    tmp_path: Path, hook: Webhook
) -> None:
    config, clock = watching(tmp_path, {"webhook": hook.url}), StandingClock()
    for start in range(0, 60, 3):  # never enough for an alarm in one life
        async with stepped_collector(config, clock=clock) as stepped:
            await answer(stepped, range(start, start + 3), BAD)
    assert [notice["status"] for notice in hook.notices] == ["firing"]


async def test_an_answer_that_is_sent_again_counts_once(tmp_path: Path, hook: Webhook) -> None:
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url})) as stepped:
        for _ in range(30):
            await answer(stepped, range(2), BAD)
        assert hook.notices == []


async def test_a_clock_that_goes_back_loses_and_invents_no_alarm(tmp_path: Path, hook: Webhook) -> None:
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url})) as stepped:
        await answer(stepped, range(4), BAD)
        stepped.clock.wrong_by_ns = -86_400_000_000_000
        await answer(stepped, range(4, 30), BAD)
        assert [notice["status"] for notice in hook.notices] == ["firing"]


async def test_traffic_of_others_and_answers_without_a_score_count_on_neither_side(
    tmp_path: Path, hook: Webhook
) -> None:
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url})) as stepped:
        await answer(stepped, range(40), BAD, service="cart")
        for number in range(40, 80):
            await stepped.send(*rag_trace(number, chunks=(), answer=BAD))
        await stepped.pass_time(10)
        await stepped.pass_time(10)
        assert hook.notices == []
        assert await stepped.collector.pipeline.alerts.active() == {"faithful": False}


async def test_a_changed_objective_ends_its_alarm(tmp_path: Path, hook: Webhook) -> None:
    clock = StandingClock()
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url}), clock=clock) as stepped:
        await answer(stepped, range(40), BAD)
        assert await stepped.collector.pipeline.alerts.active() == {"faithful": True}
    easier = watching(tmp_path, {"webhook": hook.url}, slo=[{"name": "faithful", "objective": 0.5}])
    async with stepped_collector(easier, clock=clock) as stepped:
        await stepped.work()
        assert [notice["status"] for notice in hook.notices] == ["firing", "ended"]
        Draft202012Validator(json.loads(SCHEMA.read_text())).validate(hook.notices[1])
        assert await stepped.collector.pipeline.alerts.active() == {"faithful": False}


async def test_metrics_say_which_objectives_are_broken(tmp_path: Path, hook: Webhook) -> None:
    slos = [{"name": "faithful"}, {"name": "cart", "service": "cart"}]
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url}, slo=slos)) as stepped:
        await answer(stepped, range(40), BAD)
        readings = await stepped.collector.vitals.readings()
    found = {each.attributes["ragtrace.alert.name"]: each.value for each in readings["ragtrace.alert.active"]}
    assert found == {"faithful": 1, "cart": 0}


async def test_no_address_of_a_webhook_is_in_a_message(
    tmp_path: Path, hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.statuses = [500, 401, 422]
    async with stepped_collector(watching(tmp_path, {"webhook": hook.url})) as stepped:
        await answer(stepped, range(40), BAD)
        for _ in range(3):
            await stepped.pass_time(120)
        told = [record.getMessage() for record in caplog.records if record.name.startswith("ragtrace")]
        assert any("alert:webhook (127.0.0.1)" in line for line in told)
        assert not any("secret-path" in line for line in told)
        sums = (await stepped.collector.pipeline.store.ledger()).outbox_items["alert:webhook"]
        assert sums["rejected"] == 1
