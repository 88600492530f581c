"""A judge behind OpenAI's Batch API, over real HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.judge import open_judge
from ragtrace.judge.batch import BatchLog, batches_of
from ragtrace.judge.spec import BatchSettings
from ragtrace.ports import FreeText, Judge, JudgeRequest
from tests.batch_server import Answer, BatchServer, Fault, running_batch_server
from tests.gullible_model import completion

pytestmark = pytest.mark.slow

LOST = Fault()
BUSY = Fault(status=503, body={})


class Asked(BaseModel):
    pass


def echo(body: Mapping[str, Any]) -> Answer:
    return 200, completion(body, f"heard: {body['messages'][-1]['content']}")


def failing(status: int, code: str = "") -> Any:
    return lambda _body: (status, {"error": {"code": code}})


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with running_batch_server(echo) as served:
        yield served


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress.db"


def a_judge(server: BatchServer, path: Path, *, retries: int = 0, **settings: Any) -> Judge:
    return open_judge(
        "openai:gpt-4o-mini",
        base_url=server.url,
        max_retries=retries,
        environ={},
        batches=BatchSettings(path=path, poll_s=0.02, **settings),
    )


def question(text: str) -> JudgeRequest[FreeText]:
    return JudgeRequest(
        step="answer", system="", user=text, reply_type=FreeText, inputs=Asked(), max_output_tokens=9
    )


async def asked(judge: Judge, *texts: str) -> list[str | JudgeError]:
    """Ask all at once; return the answers, or why there is none."""

    async def ask(text: str) -> str | JudgeError:
        try:
            return (await judge.ask(question(text))).value.text
        except JudgeError as exc:
            return exc

    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(ask(text)) for text in texts]
    return [each.result() for each in asking]


def heard(*texts: str) -> Sequence[str]:
    return [f"heard: {text}" for text in texts]


async def test_what_is_asked_at_once_goes_in_one_batch_and_each_gets_its_own_answer(
    server: BatchServer, path: Path
) -> None:
    async with aclosing(a_judge(server, path)) as judge:
        assert await asked(judge, "a", "b\u2028", "c\ud800") == heard("a", "b\u2028", "c?")
    assert server.sizes == [3]
    assert {*server.charged.values()} == {1}


async def test_a_batch_holds_no_more_requests_and_bytes_than_are_allowed(
    server: BatchServer, path: Path
) -> None:
    async with aclosing(a_judge(server, path, most_requests=3)) as judge:
        await asked(judge, *"abcd")
    assert sorted(server.sizes) == [1, 3]  # two batches at once are made in any order
    async with aclosing(a_judge(server, path, most_bytes=5_000)) as judge:
        await asked(judge, *(letter * 2_000 for letter in "abcd"))
    assert server.sizes[2:] == [2, 2]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(500, "", JudgeUnavailable), (429, "insufficient_quota", JudgeRefused)],
    ids=str,
)
async def test_a_request_that_fails_is_a_failure_of_its_own(
    server: BatchServer, path: Path, status: int, code: str, kind: type[JudgeError]
) -> None:
    bad = failing(status, code)
    server.model = lambda body: bad(body) if body["messages"][-1]["content"] == "b" else echo(body)
    async with aclosing(a_judge(server, path)) as judge:
        good, failed = await asked(judge, "a", "b")
    assert good == "heard: a"
    assert type(failed) is kind


async def test_of_an_expired_batch_what_was_done_is_used_and_the_rest_asked_again(
    server: BatchServer, path: Path
) -> None:
    server.ends_as, server.done_share = "expired", 0.75
    async with aclosing(a_judge(server, path, retries=1)) as judge:
        assert await asked(judge, *"abcd") == heard(*"abcd")
    assert server.sizes == [4, 1]
    assert {*server.charged.values()} == {1}


async def test_what_a_person_cancelled_is_not_asked_again(server: BatchServer, path: Path) -> None:
    server.ends_as, server.done_share = "cancelled", 0.5
    async with aclosing(a_judge(server, path, retries=2)) as judge:
        done, left = await asked(judge, "a", "b")
    assert done == "heard: a"
    assert isinstance(left, JudgeRefused)
    assert "was cancelled there" in str(left)
    assert server.sizes == [2]


async def test_a_file_that_is_turned_down_fails_its_requests_and_says_why_without_a_prompt(
    server: BatchServer, path: Path
) -> None:
    server.validate = lambda _lines: "model_not_found"
    async with aclosing(a_judge(server, path, retries=2)) as judge:
        failures = await asked(judge, "a", "b")
    assert {type(each) for each in failures} == {JudgeRefused}
    assert "was turned down: model_not_found (line 1)" in str(failures[0])
    assert "SECRET" not in str(failures[0])
    assert server.sizes == [2]


@pytest.mark.parametrize(
    ("route", "fault", "told"),
    [
        ("upload", Fault(status=401, body={}), "check the key's environment variable"),
        ("upload", Fault(status=404, body={}), "it has no Batch API"),
        ("create", Fault(status=429, body={"error": {"code": "insufficient_quota"}}), "quota is used up"),
    ],
    ids=["key", "no such API", "quota"],
)
async def test_what_a_person_must_mend_is_told_once_and_tried_no_more(
    server: BatchServer, path: Path, route: str, fault: Fault, told: str
) -> None:
    server.faults[route] = [fault]
    async with aclosing(a_judge(server, path, retries=2)) as judge:
        [failed] = await asked(judge, "a")
        assert isinstance(failed, JudgeRefused)
        assert told in str(failed)
        assert await asked(judge, "a") == heard("a")  # the account was charged
    assert {*server.charged.values()} == {1}


async def test_a_batch_whose_id_was_lost_is_found_and_not_created_again(
    server: BatchServer, path: Path
) -> None:
    server.faults["create"] = [BUSY, LOST, BUSY]
    async with aclosing(a_judge(server, path)) as judge:
        assert await asked(judge, "a", "b") == heard("a", "b")
    assert server.sizes == [2]
    assert {*server.charged.values()} == {1}


async def test_when_the_queue_is_full_smaller_batches_go_one_by_one(server: BatchServer, path: Path) -> None:
    server.validate = lambda lines: "token_limit_exceeded" if len(lines) > 2 else None
    async with aclosing(a_judge(server, path)) as judge:
        assert await asked(judge, *"abcd") == heard(*"abcd")
    assert server.sizes == [4, 2, 2]
    assert {*server.charged.values()} == {1}


async def test_a_judge_that_is_opened_again_takes_the_replies_that_were_paid_for(
    server: BatchServer, path: Path
) -> None:
    server.polls = 0
    was_created = threading.Event()
    server.on_request = lambda _number, route, _moment: was_created.set() if route == "retrieve" else None
    judge = a_judge(server, path)
    asking = asyncio.create_task(asked(judge, "a", "b"))
    await asyncio.to_thread(was_created.wait, 30)
    asking.cancel()
    await judge.aclose()
    server.polls = 1
    async with aclosing(a_judge(server, path)) as again:
        log = batches_of(again)
        assert log is not None
        assert log.unfinished() == (1, 2)
        assert await asked(again, "b", "a") == heard("b", "a")
        assert log.unfinished() == (0, 0)
    assert server.sizes == [2]


async def test_no_news_of_a_batch_is_no_reason_to_ask_again(server: BatchServer, path: Path) -> None:
    server.faults["retrieve"] = [BUSY] * 20
    async with aclosing(a_judge(server, path, retries=2)) as judge:
        [failed] = await asked(judge, "a")
        assert type(failed) is JudgeTimeout
    async with aclosing(a_judge(server, path)) as judge:
        assert await asked(judge, "a") == heard("a")
    assert server.sizes == [1]


async def test_two_processes_do_not_pay_for_the_same_requests(server: BatchServer, path: Path) -> None:
    async with aclosing(a_judge(server, path)):
        with pytest.raises(ConfigError, match="another back-fill is using it"):
            a_judge(server, path)


async def test_the_list_of_batches_holds_no_content(server: BatchServer, path: Path) -> None:
    async with aclosing(a_judge(server, path)) as judge:
        await asked(judge, "a secret question")
    [kept] = path.parent.glob("progress.*.batches")
    assert kept.stat().st_mode & 0o077 == 0
    assert b"secret" not in kept.read_bytes()


def test_where_nothing_can_be_noted_nothing_is_sent(path: Path) -> None:
    log = BatchLog(path)
    log.close()
    with pytest.raises(JudgeRefused, match="cannot be written"):
        log.plan(["a"])
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(ConfigError, match="cannot be used: file is not a database"):
        BatchLog(path)
