"""One run of `ragtrace demo`: start a collector, send traffic through it, read the verdicts."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ragtrace
from ragtrace.cli.demo.agreement import compare
from ragtrace.cli.demo.backend import find_backend, trace_link
from ragtrace.cli.demo.command import DemoOptions
from ragtrace.cli.demo.output import JsonShow, Show, TerminalShow
from ragtrace.cli.demo.process import Backend, running_collector
from ragtrace.cli.demo.traffic import DemoAnswer, ReplayedRag, load_sample
from ragtrace.cli.demo.verdicts import TraceVerdict, VerdictFile
from ragtrace.cli.extras import needs_extra
from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.judge import judge_named_by

_POLL_S = 0.1


def run_demo(options: DemoOptions) -> None:
    """Replay the traffic, and print each verdict.

    Raises:
        ConfigError: something that it needs is missing, or tracing is off.
        RagtraceError: an answer got no verdict.
    """
    with needs_extra("collector"):
        import uvicorn  # noqa: F401  the collector's process needs them: said before it is waited for
        import yaml  # noqa: F401
    _check_tracing(os.environ)
    sample = load_sample()[: options.limit]
    backend = find_backend(options.endpoint, options.ui)
    judge = judge_named_by(os.environ)
    show: Show = JsonShow() if options.json.wanted else TerminalShow()
    show.introduction(answers=len(sample), judge=judge, backend=backend.endpoint if backend else None)
    with tempfile.TemporaryDirectory(prefix="ragtrace-demo-") as name:
        folder = Path(name)
        verdicts = folder / "verdicts.jsonl"
        with running_collector(folder, judge=judge, verdicts=verdicts, backend=backend) as address:
            run = _Run(sample=sample, verdicts=VerdictFile(verdicts), show=show, backend=backend)
            run.play(address, pause_s=1 / options.rate, patience_s=options.patience_s)
    run.conclude(judge)
    if run.missing:
        raise RagtraceError(
            f"{run.missing} of {len(sample)} answers got no verdict, and none came for"
            f" {options.patience_s:.0f} s: run `ragtrace doctor` to check that the judge answers; a slow"
            " judge needs a larger --patience"
        )


@dataclass(slots=True, kw_only=True)
class _Run:
    """The course of one demo."""

    sample: tuple[DemoAnswer, ...]
    verdicts: VerdictFile
    show: Show
    backend: Backend | None
    sent: dict[str, DemoAnswer] = field(default_factory=dict)
    """By trace id."""
    judged: dict[str, TraceVerdict] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        return len(self.sample) - len(self.judged)

    def play(self, address: str, *, pause_s: float, patience_s: float) -> None:
        """Ask every question, and collect verdicts until all are there or none came for too long."""
        with self.show.running():
            with _instrumented(address):
                self._ask_all(pause_s)
            last_news = time.monotonic()
            while self.missing and time.monotonic() - last_news < patience_s:
                if self._collect():
                    last_news = time.monotonic()
                time.sleep(_POLL_S)

    def _ask_all(self, pause_s: float) -> None:
        application = ReplayedRag(self.sample)
        for labeled in self.sample:
            self.sent[application.answer(labeled.question)] = labeled
            self._collect()
            time.sleep(pause_s)

    def _collect(self) -> bool:
        """Show the verdicts that are new; say whether there were any."""
        news = [verdict for verdict in self.verdicts.new() if verdict.trace_id not in self.judged]
        for verdict in news:
            self.judged[verdict.trace_id] = verdict
            self.show.verdict(self.sent[verdict.trace_id], verdict, self._link(verdict.trace_id))
        self.show.progress(sent=len(self.sent), judged=len(self.judged), total=len(self.sample))
        return bool(news)

    def _link(self, trace_id: str) -> str | None:
        return trace_link(self.backend, trace_id) if self.backend else None

    def conclude(self, judge: str) -> None:
        """Show what the run adds up to."""
        scored = {trace_id: each for trace_id, each in self.judged.items() if each.score is not None}
        agreement = compare(
            (bool(verdict.findings), not self.sent[trace_id].is_faithful)
            for trace_id, verdict in scored.items()
        )
        worst = min(scored, key=lambda trace_id: scored[trace_id].score or 0.0, default=None)
        self.show.summary(
            agreement,
            judge=_described(judge),
            unscored=len(self.judged) - len(scored),
            missing=self.missing,
            worst=self._link(worst) if worst else None,
        )


@contextmanager
def _instrumented(address: str) -> Iterator[None]:
    # The SDK's five seconds between exports would make the table come in gusts.
    os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "200")
    ragtrace.instrument(service_name="ragtrace-demo", endpoint=address, protocol="grpc")
    try:
        yield
    finally:
        ragtrace.uninstrument()


def _check_tracing(environ: Mapping[str, str]) -> None:
    for name in ("OTEL_SDK_DISABLED", "RAGTRACE_DISABLED"):
        if environ.get(name, "").lower() in {"1", "true", "yes", "on"}:
            raise ConfigError(f"{name} turns tracing off: without traces there is nothing to show; unset it")


def _described(judge: str) -> str:
    if judge == "lexical":
        return (
            "lexical, a heuristic without a language model: it decides only what numbers, names and wording "
            "give away, and leaves the rest open. Set OPENAI_API_KEY or OPENAI_BASE_URL for a real judge."
        )
    return judge
