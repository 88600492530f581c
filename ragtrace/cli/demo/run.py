"""One run of `ragtrace demo`: start collectors, send traffic through them, read the verdicts."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import ragtrace
from ragtrace.cli.demo.backend import find_backend, trace_link
from ragtrace.cli.demo.command import DemoOptions
from ragtrace.cli.demo.output import JsonShow, Show, TerminalShow
from ragtrace.cli.demo.page import (
    PREFERRED_PORT,
    DemoPage,
    choose_port,
    ended_cleanly,
    open_page,
    stay,
)
from ragtrace.cli.demo.people import PEOPLE_JUDGE, PEOPLE_NAME
from ragtrace.cli.demo.process import (
    Backend,
    DemoJudge,
    RunningCollectors,
    running_collectors,
)
from ragtrace.cli.demo.results import AnswerResult, DemoResult
from ragtrace.cli.demo.traffic import DemoAnswer, ReplayedRag, load_sample
from ragtrace.cli.demo.verdicts import TraceVerdict, VerdictFile
from ragtrace.cli.desktop import has_desktop
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.render import many, talk
from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.judge import judge_named_by

_POLL_S = 0.1


def run_demo(options: DemoOptions) -> None:
    """Replay the traffic, and show what people and judges say of it.

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
    show: Show = JsonShow() if options.json.wanted else TerminalShow(table=options.table)
    page = _page(backend, stays=_stays(options))
    with ended_cleanly(), tempfile.TemporaryDirectory(prefix="ragtrace-demo-") as name:
        judges = _judges(Path(name) / "traces", os.environ)
        show.introduction(
            answers=len(sample),
            judges=[judge.name for judge in judges],
            backend=backend.endpoint if backend else None,
        )
        with running_collectors(Path(name), judges, backend, page) as collectors:
            stays = _stays(options)
            run = _Run(sample=sample, judges=judges, show=show, backend=backend, page=page if stays else None)
            run.play(collectors.address, pause_s=1 / options.rate, patience_s=options.patience_s)
            result = run.result()
            show.result(result)
            _show_page(page, result, show, options, collectors)
    if run.missing:
        raise RagtraceError(
            f"{run.missing} of {many(len(sample), 'answer')} got no verdict, and none came for"
            f" {options.patience_s:.0f} s: run `ragtrace doctor` to check that the judge answers; a slow"
            " judge needs a larger --patience"
        )


def _page(backend: Backend | None, *, stays: bool) -> DemoPage:
    port = choose_port(PREFERRED_PORT if stays else 0)  # nobody goes to a page that ends at once
    if stays and port != PREFERRED_PORT:
        talk(f"port {PREFERRED_PORT} is taken: the page is on port {port}")
    links = {"Jaeger": f"{backend.ui.rstrip('/')}/trace/{{trace_id}}"} if backend and backend.ui else {}
    return DemoPage(port=port, links=links)


def _show_page(
    page: DemoPage, result: DemoResult, show: Show, options: DemoOptions, collectors: RunningCollectors
) -> None:
    """Say where the page is, open it, and stay until the person has seen enough."""
    wrong = result.wrong_claim()
    stays = _stays(options)
    url = wrong.answer.page if wrong and stays else page.url
    if fault := page.fault(url):
        raise RagtraceError(f"the page {url} cannot be shown: {fault}")
    show.page(url, stays=stays)
    if stays:
        if options.opens or (options.opens is None and has_desktop(os.environ)):
            open_page(url)
        stay(collectors.check)


def _stays(options: DemoOptions) -> bool:
    if options.stays is not None:
        return options.stays
    return sys.stdin.isatty() and sys.stdout.isatty() and not options.json.wanted


def _judges(folder: Path, environ: Mapping[str, str]) -> tuple[DemoJudge, ...]:
    """Return who judges: people, the judge without a key, and the one that the environment names."""
    names = {PEOPLE_NAME: PEOPLE_JUDGE, "lexical": "lexical"}
    named = judge_named_by(environ)
    folder.mkdir()
    return tuple(
        DemoJudge(name=name, use=use, verdicts=folder / f"verdicts-{number}.jsonl")
        for number, (name, use) in enumerate({**names, named: named}.items())
    )


class _Run:
    """The course of one demo."""

    def __init__(
        self,
        *,
        sample: Sequence[DemoAnswer],
        judges: Sequence[DemoJudge],
        show: Show,
        backend: Backend | None,
        page: DemoPage | None,
    ) -> None:
        """Without a page that stays, no answer names its address there."""
        self._sample, self._show, self._backend, self._page = sample, show, backend, page
        self._sent: dict[str, DemoAnswer] = {}
        self._files = {judge.name: VerdictFile(judge.verdicts) for judge in judges}
        self._read: dict[str, dict[str, TraceVerdict]] = {judge.name: {} for judge in judges}

    @property
    def missing(self) -> int:
        """The answers without a verdict of each judge."""
        return len(self._sample) - len(self._complete())

    def play(self, address: str, *, pause_s: float, patience_s: float) -> None:
        """Ask every question, and collect verdicts until all are there or none came for too long."""
        with self._show.running():
            with _instrumented(address):
                self._ask_all(pause_s)
            last_news = time.monotonic()
            while self.missing and time.monotonic() - last_news < patience_s:
                if self._collect():
                    last_news = time.monotonic()
                time.sleep(_POLL_S)

    def result(self) -> DemoResult:
        """Return what the run found."""
        complete = self._complete()
        answers = [
            AnswerResult(
                labeled=labeled,
                trace_id=trace_id,
                verdicts={judge: read[trace_id] for judge, read in self._read.items()},
                page=self._page_of(trace_id),
                link=trace_link(self._backend, trace_id) if self._backend else None,
            )
            for trace_id, labeled in self._sent.items()
            if trace_id in complete
        ]
        return DemoResult(judges=[*self._read], answers=answers, missing=self.missing)

    def _ask_all(self, pause_s: float) -> None:
        application = ReplayedRag(self._sample)
        for labeled in self._sample:
            self._sent[application.answer(labeled.question)] = labeled
            self._collect()
            time.sleep(pause_s)

    def _collect(self) -> bool:
        """Read the verdicts that are new; say whether there were any."""
        news = [(judge, verdict) for judge, file in self._files.items() for verdict in file.new()]
        for judge, verdict in news:
            self._read[judge][verdict.trace_id] = verdict
        self._show.progress(sent=len(self._sent), judged=len(self._complete()), total=len(self._sample))
        return bool(news)

    def _page_of(self, trace_id: str) -> str:
        """Return the page of what people say, whoever else judged the answer."""
        if self._page is None:
            return ""
        people = self._read[PEOPLE_NAME][trace_id]
        return f"{self._page.url_of(trace_id, people.span_id)}?version={people.carrier_span_id}"

    def _complete(self) -> set[str]:
        return set.intersection(*(set(read) for read in self._read.values()))


@contextmanager
def _instrumented(address: str) -> Iterator[None]:
    # The SDK's five seconds between exports would make the progress come in gusts.
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
