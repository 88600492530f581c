"""`ragtrace alerts`: what is broken, with its numbers, and whether notices arrive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.program import json_lines, run
from tests.integration.collector.stepping import stepped_collector
from tests.integration.collector.test_alerts import BAD, GOOD, answer, watching
from tests.integration.collector.webhook import Webhook, webhook


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as served:
        yield served


def written(folder: Path, hook: Webhook, **changes: Any) -> str:
    settings: dict[str, Any] = {
        "export": [{"endpoint": "http://localhost:4317"}],
        "store": {"path": str(folder / "store.db")},
        "slo": [{"name": "faithful", "service": "shop"}],
        "alerts": {"to": [{"webhook": hook.url, "name": "ops"}, {"slack": hook.url}]},
        **changes,
    }
    (folder / "collector.yaml").write_text(json.dumps(settings))
    return str(folder / "collector.yaml")


async def judge(folder: Path, hook: Webhook, text: str) -> None:
    async with stepped_collector(watching(folder, {"webhook": hook.url, "name": "ops"})) as stepped:
        await answer(stepped, range(30), text)


async def test_a_broken_objective_is_listed_with_its_denominators(tmp_path: Path, hook: Webhook) -> None:
    await judge(tmp_path, hook, BAD)
    config = written(tmp_path, hook)
    done = run("alerts", "list", "--config", config)
    assert done.exit_code == 1
    assert done.stdout.startswith("faithful: broken since 2025-")
    assert "30 of 30 judged answers failed faithfulness since it is watched" in " ".join(done.stdout.split())
    (told,) = json_lines(run("alerts", "list", "--config", config, "--json").stdout)
    assert (told["state"], told["judged_answers"], told["failing_answers"]) == ("broken", 30, 30)


async def test_an_unbroken_one_is_no_failure(tmp_path: Path, hook: Webhook) -> None:
    await judge(tmp_path, hook, GOOD)
    done = run("alerts", "list", "--config", written(tmp_path, hook))
    assert done.exit_code == 0
    assert "faithful: no evidence against it; 0 of 30 judged answers failed" in " ".join(done.stdout.split())


async def test_without_an_answer_nothing_is_known(tmp_path: Path, hook: Webhook) -> None:
    async with stepped_collector(watching(tmp_path)) as stepped:
        await stepped.work()
    done = run("alerts", "list", "--config", written(tmp_path, hook))
    assert done.exit_code == 0
    assert done.stdout == "faithful: no answer was judged yet, so nothing is known\n"


def test_a_test_notice_says_what_came_back(tmp_path: Path, hook: Webhook) -> None:
    config = written(tmp_path, hook)
    done = run("alerts", "test", "--config", config, columns=200)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "alert:ops (127.0.0.1) accepted the test notice",
        "alert:slack (127.0.0.1) accepted the test notice",
    ]
    notice, message = hook.notices
    assert (notice["status"], notice["judged_answers"]) == ("test", 0)
    assert message["blocks"][0]["text"]["text"].endswith("this is a test, and nothing is wrong")


def test_a_refused_test_notice_is_a_failure_that_hides_the_address(tmp_path: Path, hook: Webhook) -> None:
    hook.statuses = [403]
    done = run("alerts", "test", "--config", written(tmp_path, hook), "--to", "ops", columns=200)
    assert done.exit_code == 1
    assert done.stdout == "alert:ops (127.0.0.1) answered 403\n"
    hook.statuses = [500]
    (told,) = json_lines(
        run("alerts", "test", "--config", written(tmp_path, hook), "--to", "ops", "--json").stdout
    )
    assert told == {
        "to": "alert:ops (127.0.0.1)",
        "accepted": False,
        "error": "alert:ops (127.0.0.1) answered 500",
    }


def test_nobody_to_tell_is_said_with_who_there_is(tmp_path: Path, hook: Webhook) -> None:
    done = run("alerts", "test", "--config", written(tmp_path, hook), "--to", "opps")
    assert done.exit_code == 2
    assert "has no 'opps': there is ops, slack" in " ".join(done.stderr.split())
    done = run("alerts", "test", "--config", written(tmp_path, hook, alerts={}))
    assert "`alerts.to` names nobody" in " ".join(done.stderr.split())
