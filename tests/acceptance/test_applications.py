"""What users see of answers that are streamed, or whose passages stand in their prompts alone."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace import semconv
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.running import carriers_in, config_of, post, running_collector
from tests.patience import PATIENCE_S
from tests.unit.traces.recordings import all_recordings

pytestmark = pytest.mark.slow

QUESTION = "How long do refunds take?"
PASSAGE = "Refunds take 14 days."
PROMPT = f"<context>{PASSAGE}</context>\n\n{QUESTION}"
UNMARKED = f"{PASSAGE}\n\n{QUESTION}"
ENDED = ("judged", "ineligible", "failed", "sampled_out", "filtered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of an answer: the collector's ledger, and its carriers. The spans are stored beside them."""

    folder: Path
    outcomes: Mapping[str, int]
    carriers: Sequence[Span]

    @property
    def verdict(self) -> tuple[str, ...]:
        return (*self.outcomes, *(carrier.name for carrier in self.carriers))

    async def asked(self, command: str, *options: str) -> Sequence[Mapping[str, Any]]:
        ended = await asyncio.to_thread(run, command, *options, "--json")
        return json_lines(ended.stdout)

    async def backfilled(self, *options: str) -> tuple[Mapping[str, Any], Sequence[Span]]:
        """Judge what is stored: the report, and the carriers."""
        script, verdicts = self.folder / "script.json", self.folder / "verdicts.jsonl"
        script.write_text("{}")
        verdicts.unlink(missing_ok=True)
        source = ("--from", f"otlp-file:{self.folder / 'spans.jsonl'}", "--to", f"otlp-file:{verdicts}")
        told = await self.asked("backfill", *source, "--judge", f"scripted:{script}", *options)
        return told[-1], carriers_in(verdicts)

    async def explained(self, *options: str) -> Mapping[str, Any]:
        """Return the record as ``ragtrace explain`` tells it."""
        (told,) = await self.asked("explain", str(self.folder / "spans.jsonl"), *options)
        (record,) = told["records"]
        return record  # type: ignore[no-any-return]


async def seen(folder: Path, application: Callable[[], object] | Sequence[Span], **changes: Any) -> Seen:
    """Run an application, or send a stranger's spans, to a collector that judges; wait for the outcome."""
    out = folder / "out.jsonl"
    export = [{"endpoint": f"otlp-file:{out}", "forward": True}]
    async with running_collector(config_of(folder, export=export, **changes)) as collector:
        if isinstance(application, Sequence):
            assert (await post(collector, encode(application))).status_code == 200
        else:
            endpoint = f"http://127.0.0.1:{collector.grpc_port}"
            assert ragtrace.instrument(service_name="shop", endpoint=endpoint, protocol="grpc")
            if inspect.iscoroutinefunction(application):
                await application()
            else:
                application()
            await asyncio.to_thread(ragtrace.uninstrument)
        outcomes: dict[str, int] = {}
        async with asyncio.timeout(PATIENCE_S):
            while not outcomes:
                await asyncio.sleep(0.02)  # what is waited for is another task's
                told = (await collector.pipeline.store.ledger()).by_name()
                outcomes = {
                    name: number for name, number in told.items() if number and name.startswith(ENDED)
                }
    lines = [line for line in out.read_text("utf-8").splitlines() if semconv.SCOPE_EVALUATION not in line]
    (folder / "spans.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    carriers = [each for each in carriers_in(out) if each.scope.name == semconv.SCOPE_EVALUATION]
    return Seen(folder=folder, outcomes=outcomes, carriers=carriers)


@ragtrace.generation(model="m")
async def pieces(prompt: str, *, is_whole: bool) -> AsyncIterator[str]:
    yield "Refunds take "
    if not is_whole:
        await asyncio.Event().wait()
    yield "14 days."


@ragtrace.rag
async def ask(question: str, *, is_whole: bool) -> AsyncIterator[str]:
    with ragtrace.retrieval(query=question) as retrieval:
        retrieval.set_chunks([PASSAGE])
    async for piece in pieces(question, is_whole=is_whole):
        yield piece


async def test_stream_that_was_read_to_its_end_is_judged(tmp_path: Path) -> None:
    async def read() -> None:
        assert "".join([piece async for piece in ask(QUESTION, is_whole=True)]) == PASSAGE

    told = await seen(tmp_path, read)
    report, carriers = await told.backfilled()
    assert told.verdict == ("judged", "evaluation pass")
    assert (report["judged"], [each.name for each in carriers]) == (1, ["evaluation pass"])
    assert (await told.explained())["gaps"] == []


async def test_stream_whose_reader_is_cancelled_is_incomplete_and_says_why(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def read() -> None:
        async for _ in ask(QUESTION, is_whole=False):
            began.set()

    async def read_and_leave() -> None:
        task = asyncio.create_task(read())
        await began.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    told = await seen(tmp_path, read_and_leave)
    report, _ = await told.backfilled()
    assert told.verdict == ("ineligible:incomplete", "evaluation skipped")
    assert report["ineligible"] == {"incomplete": 1}
    (gap,) = (await told.explained())["gaps"]
    assert (gap["part"], gap["reason"]) == ("answer", "incomplete")
    assert "its reader went away before the end" in gap["detail"]


def prompting(prompt: str, answer: str = PASSAGE) -> Callable[[], None]:
    """Return an application that marks nothing but its call of the model."""

    def application() -> None:
        with ragtrace.generation(model="m", prompt=prompt) as chat:
            chat.set_answer(answer)

    return application


async def test_generation_without_a_retrieval_is_judged_by_its_prompt(tmp_path: Path) -> None:
    told = await seen(tmp_path, prompting(PROMPT, "Refunds take 30 days."))
    assert told.verdict == ("judged", "evaluation fail")
    assert told.carriers[0].attributes[semconv.CONTEXT_SOURCE] == "prompt"


async def test_conversation_is_not_judged_and_its_user_hears_of_the_switch(tmp_path: Path) -> None:
    talk = next(each for each in all_recordings() if each.name.endswith("-talk"))
    told = await seen(tmp_path, talk.spans)
    report, carriers = await told.backfilled()
    assert told.verdict == ("ineligible:no_retrieval",)
    assert (report["ineligible"], carriers) == ({"no_retrieval": 1}, ())
    (gap,) = (await told.explained())["gaps"]
    assert "`extract.context: prompt`" in gap["detail"]
    assert "`--set extract.context=prompt`" in gap["detail"]


async def test_a_switch_says_whether_prompts_are_context_live_and_later(tmp_path: Path) -> None:
    for name in ("auto", "prompt", "spans"):
        (tmp_path / name).mkdir()
    auto = await seen(tmp_path / "auto", prompting(UNMARKED))
    prompt = await seen(tmp_path / "prompt", prompting(UNMARKED), extract={"context": "prompt"})
    spans = await seen(tmp_path / "spans", prompting(PROMPT), extract={"context": "spans"})
    assert (auto.verdict, spans.verdict) == (("ineligible:no_retrieval",),) * 2
    assert prompt.verdict == ("judged", "evaluation pass")
    switch = ("--set", "extract.context=prompt")
    report, (carrier,) = await auto.backfilled(*switch)
    assert (report["judged"], carrier.attributes[semconv.CONTEXT_SOURCE]) == (1, "prompt")
    record = await auto.explained(*switch)
    assert ([each["text"] for each in record["contexts"]], record["question"]) == ([PASSAGE], QUESTION)
    assert (await spans.backfilled("--set", "extract.context=spans"))[0]["judged"] == 0
    assert (await spans.backfilled())[0]["judged"] == 1
