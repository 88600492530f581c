"""A real language model behind the judge `llama`: what is asked of it and what comes back has the right form.

The model is too small to understand anything: nothing here looks at what it says.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field

from ragtrace.errors import JudgeCutOff, JudgeNonsense, JudgeRefused
from ragtrace.judge import open_judge, unwrapped
from ragtrace.judge.llama import LlamaJudge
from ragtrace.judge.openai.dialect import Likelihoods, OutputMode
from ragtrace.judge_steps import VerifyForm
from ragtrace.metrics import StepLimits, VerifySettings
from ragtrace.metrics.session import StepSession
from ragtrace.model import Claim, RagRecord
from ragtrace.ports import FreeText, Judge, JudgeRequest, YesProbability
from tests.backends.process import eventually
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

LONG = "The shop takes goods back within fourteen days of purchase. " * 12
N_CTX = 1024

ReplyT = TypeVar("ReplyT", bound=BaseModel)

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="looks for child processes in Linux's /proc"
)


class Asked(BaseModel):
    """Judges that compute would read this."""


class Weather(BaseModel):
    sky: Literal["blue", "grey", "black"]
    wind: Annotated[int, Field(ge=0, le=12)]
    words: list[Annotated[str, Field(max_length=12)]] = Field(max_length=2)


class Essay(BaseModel):
    text: str = Field(max_length=4000)


def request(user: str, reply_type: type[ReplyT], *, tokens: int = 96) -> JudgeRequest[ReplyT]:
    return JudgeRequest(
        step="test",
        system="You answer briefly.",
        user=user,
        reply_type=reply_type,
        inputs=Asked(),
        max_output_tokens=tokens,
    )


def spec_of(gguf: Path, n_ctx: int = N_CTX) -> str:
    # several threads wait for each other at every layer: slow where tests share their cores
    return f"llama:{gguf}?n_ctx={n_ctx}&threads=1"


def children(pid: int) -> list[int]:
    """Return the processes that serve a model for this one: it may have others, such as a back end."""
    found = (task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return [
        int(child) for line in found for child in line.split() if b"llama_child" in command_of(int(child))
    ]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()  # a zombie has none
    except OSError:
        return b""


def is_running(pid: int) -> bool:
    return command_of(pid) != b""


@pytest.fixture
async def judge(gguf: Path) -> AsyncIterator[Judge]:
    opened = open_judge(spec_of(gguf))
    yield opened
    await opened.aclose()


def inner(judge: Judge) -> LlamaJudge:
    found = unwrapped(judge)
    assert isinstance(found, LlamaJudge)
    return found


async def test_a_reply_obeys_its_json_schema(judge: Judge) -> None:
    reply = await judge.ask(request("How is the weather?", Weather))
    assert Weather.model_validate(reply.value) == reply.value
    assert reply.usage.calls == 1
    assert inner(judge).output_mode is OutputMode.JSON_SCHEMA


async def test_log_probabilities_give_a_probability_of_yes(judge: Judge) -> None:
    reply = await judge.ask(request("Is Paris in France? Answer Yes or No.", YesProbability))
    assert 0 < reply.value.p_yes < 1
    assert reply.usage.output_tokens == 1
    assert inner(judge).likelihoods is Likelihoods.TOP_20


async def test_claims_get_verdicts_with_a_confidence_from_log_probabilities(gguf: Path) -> None:
    judge = open_judge(spec_of(gguf, n_ctx=2048))
    record = RagRecord.of(question="How long?", contexts={"faq": "Refunds take 14 days."}, answer="It says.")
    settings = VerifySettings(form=VerifyForm.LOGPROBS, sentinel_rate=0)
    steps = StepSession(record, judge, limits=StepLimits(verify=settings))
    await steps.take_claims(
        [Claim(index=n, text=f"Refunds take {days} days.") for n, days in enumerate((14, 30))]
    )
    found = await steps.verify()
    await judge.aclose()
    assert found.form is VerifyForm.LOGPROBS
    assert [0 < (verdict.confidence or 0) < 1 for verdict in found.verdicts] == [True, True]


async def test_a_repeated_prefix_is_counted_as_cached(judge: Judge) -> None:
    first = (await judge.ask(request(f"{LONG} Is it open?", FreeText, tokens=4))).usage
    second = (await judge.ask(request(f"{LONG} Is it far?", FreeText, tokens=4))).usage
    assert (first.cached_tokens, first.output_tokens) == (0, 4)
    assert second.input_tokens == pytest.approx(first.input_tokens, abs=4)
    assert 100 < second.cached_tokens <= second.input_tokens


async def test_a_reply_that_ends_at_the_token_limit_is_noticed(judge: Judge) -> None:
    with pytest.raises(JudgeCutOff):
        await judge.ask(request("Write a long essay about the sea.", Essay, tokens=8))
    text = (await judge.ask(request("Write a long essay about the sea.", FreeText, tokens=8))).value
    assert text.cut_off
    assert text.text


async def test_a_prompt_beyond_the_context_names_the_setting(judge: Judge) -> None:
    with pytest.raises(JudgeNonsense, match=rf"n_ctx={N_CTX} .* raise it \(llama:PATH\?n_ctx={2 * N_CTX}\)"):
        await judge.ask(request("word " * 2 * N_CTX, FreeText))


@needs_proc
async def test_a_crash_of_the_child_costs_no_more_than_a_restart(judge: Judge) -> None:
    await judge.ask(request("Hello", FreeText, tokens=4))
    [child] = children(os.getpid())
    os.kill(child, signal.SIGKILL)
    assert (await judge.ask(request("Hello", FreeText, tokens=4))).value.text
    assert child not in children(os.getpid())


@needs_proc
async def test_closing_the_judge_ends_the_child(gguf: Path) -> None:
    judge = open_judge(spec_of(gguf))
    await judge.ask(request("Hello", FreeText, tokens=4))
    [child] = children(os.getpid())
    await judge.aclose()
    assert not is_running(child)
    assert children(os.getpid()) == []


@needs_proc
async def test_giving_up_while_the_model_is_loaded_leaves_nothing_behind(gguf: Path) -> None:
    judge = open_judge(spec_of(gguf))
    asking = asyncio.create_task(judge.ask(request("Hello", FreeText, tokens=4)))
    await asyncio.to_thread(eventually, lambda: children(os.getpid()), what="the child")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert children(os.getpid()) == []
    await judge.aclose()


PARENT = """
import asyncio, sys
from pydantic import BaseModel
from ragtrace.judge import open_judge
from ragtrace.ports import FreeText, JudgeRequest

async def main():
    judge = open_judge(sys.argv[1])
    await judge.ask(JudgeRequest(
        step="x", system="", user="Hello", reply_type=FreeText, inputs=FreeText(text=""), max_output_tokens=1
    ))
    print("answered", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@needs_proc
def test_the_child_ends_with_a_parent_that_is_killed(gguf: Path) -> None:
    command = [sys.executable, "-c", PARENT, spec_of(gguf)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "answered\n"
        [child] = children(parent.pid)
        parent.kill()
    eventually(lambda: not is_running(child), what="the child's end")


@pytest.fixture
def damaged(gguf: Path, tmp_path: Path) -> Path:
    with gguf.open("rb") as file:
        begun = file.read(2_000_000)
    path = tmp_path / "damaged.gguf"
    path.write_bytes(begun)
    return path


async def test_a_damaged_model_is_refused_with_the_reason(damaged: Path) -> None:
    judge = open_judge(f"llama:{damaged}")
    with pytest.raises(JudgeRefused, match="corrupted or incomplete"):
        await judge.ask(request("Hello", FreeText))
    await judge.aclose()


async def test_a_context_beyond_the_memory_is_refused_by_name(gguf: Path) -> None:
    judge = open_judge(f"llama:{gguf}?n_ctx={2**24}")
    with pytest.raises(JudgeRefused, match=f"not enough memory for it with n_ctx={2**24}"):
        await judge.ask(request("Hello", FreeText))
    await judge.aclose()


@pytest.mark.long
def test_a_whole_run_ends_with_an_outcome_for_each_record(gguf: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    record = {"question": "How long?", "contexts": ["Refunds take 14 days."]}
    answers = ["Refunds take 30 days.", ""]
    cases.write_text(
        "".join(json.dumps({"id": str(n), **record, "answer": a}) + "\n" for n, a in enumerate(answers))
    )
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "ragtrace.cli",
            "evaluate",
            cases,
            "--judge",
            spec_of(gguf, n_ctx=2048),
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["id"] for line in lines] == ["0", "1"], run.stderr
    for line in lines:
        assert line["status"] in ("pass", "fail", "skipped", "error")
        assert (line["score"] is not None) == (line["status"] in ("pass", "fail"))


async def test_slots_answer_side_by_side(gguf: Path) -> None:
    judge = open_judge(f"{spec_of(gguf, n_ctx=256)}&parallel=2")
    async with asyncio.TaskGroup() as group:
        asks = [group.create_task(judge.ask(request("Hello", FreeText, tokens=4))) for _ in range(3)]
    assert all(ask.result().value.text for ask in asks)
    await judge.aclose()
