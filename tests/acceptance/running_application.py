"""What an application's user sees: live through a collector, and later of the stored spans."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ragtrace
from ragtrace import semconv
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.running import carriers_in, config_of, post, running_collector

__all__ = ["Seen", "seen_of_application", "seen_of_spans", "stored_spans"]

_ENDED = ("judged", "ineligible", "failed", "sampled_out", "filtered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of some answers."""

    outcomes: Mapping[str, int]
    """The collector's ledger: ``judged``, ``ineligible:incomplete``, …"""
    carriers: Sequence[Span]
    spans: Sequence[Span]
    """What the application sent."""
    stored: Path
    """The same, in a file."""
    folder: Path

    @property
    def names(self) -> Sequence[str]:
        """The carriers' names."""
        return [each.name for each in self.carriers]

    async def backfilled(self, *options: str) -> tuple[Mapping[str, Any], Sequence[Span]]:
        """Judge what is stored: the report, and the carriers."""
        script, verdicts = self.folder / "script.json", self.folder / "verdicts.jsonl"
        script.write_text("{}")
        verdicts.unlink(missing_ok=True)
        source = ("--from", f"otlp-file:{self.stored}", "--to", f"otlp-file:{verdicts}")
        judge = ("--judge", f"scripted:{script}", "--json")
        ended = await asyncio.to_thread(run, "backfill", *source, *judge, *options)
        return json_lines(ended.stdout)[-1], carriers_in(verdicts)

    async def explained(self, *options: str) -> Sequence[Mapping[str, Any]]:
        """Return the records as ``ragtrace explain`` tells them."""
        ended = await asyncio.to_thread(run, "explain", str(self.stored), "--json", *options)
        return [record for told in json_lines(ended.stdout) for record in told.get("records", ())]

    async def why(self) -> str:
        """Return what ``ragtrace why`` says of the trace."""
        store = ("--from", f"store:{self.folder}/store.db")
        told = await asyncio.to_thread(run, "why", self.spans[0].trace_id, *store)
        return " ".join(told.output.split())


async def seen_of_application(
    folder: Path,
    application: Callable[[str], Awaitable[object] | object],
    *,
    answers: int = 1,
    **changes: Any,
) -> Seen:
    """Run an application, which gets the endpoint, and a collector that judges it; wait for the outcomes."""
    async with _collector(folder, changes) as collector:
        endpoint = f"http://127.0.0.1:{collector.grpc_port}"
        if inspect.iscoroutinefunction(application):
            await application(endpoint)
        else:
            await asyncio.to_thread(application, endpoint)
        await asyncio.to_thread(ragtrace.uninstrument)
        outcomes = await _outcomes(collector, answers)
    return _seen(folder, outcomes)


async def seen_of_spans(folder: Path, *spans: Span, answers: int = 1, **changes: Any) -> Seen:
    """Send spans as a stranger's SDK does, and wait for the outcomes."""
    async with _collector(folder, changes) as collector:
        assert (await post(collector, encode(spans))).status_code == 200
        outcomes = await _outcomes(collector, answers)
    return _seen(folder, outcomes)


def stored_spans(folder: Path) -> Sequence[Span]:
    """Return what the collector handed on: the application's spans and the carriers."""
    return carriers_in(folder / "out.jsonl")


def _collector(folder: Path, changes: Mapping[str, Any]) -> Any:
    export = [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}", "forward": True}]
    return running_collector(config_of(folder, export=export, **changes))


async def _outcomes(collector: Collector, answers: int) -> Mapping[str, int]:
    """Wait until so many answers have ended."""
    async with asyncio.timeout(30):
        while True:
            outcomes = {
                name: number
                for name, number in (await collector.pipeline.store.ledger()).by_name().items()
                if number and name.startswith(_ENDED)
            }
            if sum(outcomes.values()) >= answers:
                return outcomes
            await asyncio.sleep(0.02)  # what is waited for is another task's


def _seen(folder: Path, outcomes: Mapping[str, int]) -> Seen:
    written = stored_spans(folder)
    spans = [each for each in written if each.scope.name != semconv.SCOPE_EVALUATION]
    stored = folder / "spans.jsonl"
    lines = (folder / "out.jsonl").read_text("utf-8").splitlines()
    stored.write_text("".join(f"{line}\n" for line in lines if semconv.SCOPE_EVALUATION not in line), "utf-8")
    carriers = [each for each in written if each.scope.name == semconv.SCOPE_EVALUATION]
    return Seen(outcomes=outcomes, carriers=carriers, spans=spans, stored=stored, folder=folder)
