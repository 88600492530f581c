"""One run of `ragtrace demo`: people as a judge, a collector, traffic through it, and the verdicts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

import ragtrace
from ragtrace import process
from ragtrace.answers.carrier import is_carrier, read_carrier, target_span_id
from ragtrace.cli.demo import DemoOptions
from ragtrace.cli.render import (
    has_desktop,
    many,
    one_line,
    open_console,
    print_json,
    print_line,
    shortened,
)
from ragtrace.errors import ConfigError, InputError, RagtraceError
from ragtrace.judge import Script, ScriptedJudge, judge_named_by, open_judge
from ragtrace.judge.scripted import ScriptedAnswer, ScriptedClaim, ScriptedVerdict
from ragtrace.judge.spec import JudgeSettings
from ragtrace.model import (
    Chunk,
    Evaluation,
    JudgeIdentity,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.pipeline import evaluate
from ragtrace.ports import Judge
from ragtrace.records import to_json_line
from ragtrace.sentences import split_sentences
from ragtrace.stats import wilson_interval
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span

PEOPLE: Final = JudgeIdentity(provider="human", model="ragtruth", computes=True, is_human=True)
_LABELS: Final[Mapping[str, Literal["supported", "contradicted", "not_mentioned"]]] = {
    "supported": "supported",
    "contradicted": "contradicted",
    "neutral": "not_mentioned",
}


class LabeledSentence(BaseModel, frozen=True):
    """A sentence of an answer, with what the annotators said of it."""

    text: str
    label: str
    marked: tuple[Mapping[str, str], ...] = ()
    """Parts with their ``text`` and ``type``, the annotators' word: ``Evident Conflict``, …"""
    evidence: Mapping[str, str] | None = None
    """The ``context`` whose ``quote`` contradicts it: looked up by ragtrace's authors."""


class DemoAnswer(BaseModel, frozen=True):
    """A question, the passages retrieved for it, a model's answer, and what people said of it.

    `ragtrace calibrate` reads the same rows.
    """

    id: str
    question: str
    contexts: tuple[Mapping[str, str], ...]
    answer: str
    model: str
    claims: tuple[LabeledSentence, ...]

    @property
    def record(self) -> RagRecord:
        """What a judge sees."""
        chunks = tuple(Chunk(id=one["id"], text=one["text"], rank=at) for at, one in enumerate(self.contexts))
        return RagRecord(id=self.id, question=self.question, chunks=chunks, answer=self.answer)


def load_sample() -> tuple[DemoAnswer, ...]:
    """Read the sample of RAGTruth that is shipped with ragtrace."""
    text = (files("ragtrace.cli") / "data" / "ragtruth_qa_sample.jsonl").read_text("utf-8")
    return tuple(map(DemoAnswer.model_validate_json, text.splitlines()))


class PeopleJudge(ScriptedJudge):
    """Repeats the labels of the sample's answers."""

    identity = PEOPLE


def open_people(settings: JudgeSettings) -> Judge:
    """Open the judge that a collector's `judge.use` names; there is nothing to set."""
    sample = load_sample()
    named = {max((each.text for each in one.claims), key=len): one for one in sample}
    longest_first = sorted(named, key=len, reverse=True)  # one answer may say what is a part of another
    return PeopleJudge(
        Script(
            answers={text: ScriptedAnswer(claims=[*_claims(named[text])]) for text in longest_first},
            claims={said.text: _verdict(said, one.contexts) for one in sample for said in one.claims},
        )
    )


def _claims(answer: DemoAnswer) -> Iterator[ScriptedClaim]:
    """Yield the labeled sentences, with the numbers of ours that each overlaps."""
    parts, at = split_sentences(answer.answer), 0
    for labeled in answer.claims:
        start = answer.answer.index(labeled.text, at)
        at = start + len(labeled.text)
        covered = [part.number for part in parts if part.start < at and part.end > start]
        yield ScriptedClaim(text=labeled.text, sentences=covered)


def _verdict(said: LabeledSentence, contexts: Sequence[Mapping[str, str]]) -> ScriptedVerdict:
    evidence = said.evidence or {}
    marked = " and ".join(f"“{shortened(part['text'], 80)}” ({part['type']})" for part in said.marked)
    looked_up = " They named no passage: ragtrace's authors looked up the quote." if evidence else ""
    return ScriptedVerdict(
        label=_LABELS[said.label],
        chunks=[at for at, one in enumerate(contexts, 1) if one["id"] == evidence.get("context")],
        quote=evidence.get("quote", ""),
        reason=f"The annotators marked {marked}.{looked_up}"[:400] if marked else "",
    )


_PAUSE_S: Final = 0.04
_POLL_S: Final = 0.1
_STOP_TIMEOUT_S: Final = 30
_PATIENCE_S: Final = 120
_LOCAL_OTLP: Final = "http://localhost:4317"
_WRONG: Final = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)


def run_demo(options: DemoOptions) -> None:
    """Replay the traffic, and show what people and judges say of it.

    Raises:
        ConfigError: something that it needs is missing, or tracing is off.
        InputError: nothing listens at ``--to``.
        RagtraceError: an answer got no verdict.
    """
    import uvicorn  # noqa: F401  the collector's process needs them: said before it is waited for
    import yaml  # noqa: F401

    for name in ("OTEL_SDK_DISABLED", "RAGTRACE_DISABLED"):
        if os.environ.get(name, "").lower() in {"1", "true", "yes", "on"}:
            raise ConfigError(f"{name} turns tracing off: without traces there is nothing to show; unset it")
    stays = options.stays
    if stays is None:
        stays = sys.stdin.isatty() and sys.stdout.isatty() and not options.json.wanted
    sample = load_sample()[: options.limit]
    backend = _find_backend(options.endpoint)
    console = None if options.json.wanted else open_console()
    with ExitStack() as opened:
        for number in (signal.SIGTERM, signal.SIGHUP):  # whoever ends the demo ends its collector, too
            signal.signal(number, lambda given, _: sys.exit(128 + given))
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="ragtrace-demo-")))
        if console is not None:
            also = f" They also go to {backend.endpoint}." if backend else ""
            console.print(
                f"{many(len(sample), 'answer')} of RAGTruth {'flows' if len(sample) == 1 else 'flow'} through"
                f" an instrumented application and a collector.{also}"
            )
        collector = opened.enter_context(running_collector(folder, backend))
        found = _play(sample, collector, backend)
        for judge in dict.fromkeys(("lexical", judge_named_by(os.environ))):
            found.verdicts[judge] = process.run(_judged(found.sent, judge))
        _print_as_json(found) if console is None else _print(console, found)
        url = collector.page
        if wrong := found.wrong_claim():
            url += f"answers/{wrong[0]}/{found.spans[wrong[0]]}"
        if console is not None and stays:
            console.print("The claim in the answer, beside the passage (Ctrl-C ends the demo):")
            console.print(url, soft_wrap=True, style="bold")
        elif console is not None:
            console.print("In a terminal, or with --stay, the demo shows this claim on its page.")
        if stays:
            if options.opens or (options.opens is None and has_desktop(os.environ)):
                with suppress(webbrowser.Error, OSError):
                    webbrowser.open(url)
            with suppress(KeyboardInterrupt):
                collector.wait()
    if found.missing:
        raise RagtraceError(
            f"{found.missing} of {many(len(sample), 'answer')} got no verdict: run `ragtrace doctor` to check"
            " that the judge answers"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A trace back end that gets the traffic and the verdicts."""

    endpoint: str
    ui: str | None
    """Where Jaeger's page is, if it is Jaeger."""

    def link(self, trace_id: str) -> str:
        """Say where a person sees the trace."""
        return f"{self.ui}/trace/{trace_id}" if self.ui else f"trace {trace_id} in {self.endpoint}"


def _find_backend(endpoint: str | None) -> Backend | None:
    """Return the back end that was named, else the one that listens on localhost:4317, else ``None``."""
    if endpoint is None and not _listens(_LOCAL_OTLP):
        return None
    address = endpoint or _LOCAL_OTLP
    if address.startswith("otlp-file:"):
        return Backend(endpoint=address, ui=None)
    try:
        page = f"http://{urlsplit(address if '://' in address else f'//{address}').hostname}:16686"
        is_there = _listens(address)
    except ValueError as exc:
        raise InputError(f"--to {address}: {exc}") from exc
    if not is_there:
        raise InputError(
            f"--to {address}: nothing listens there; start the back end first, or leave --to out"
        )
    return Backend(endpoint=address, ui=page if _listens(page) else None)


def _listens(url: str) -> bool:
    parts = urlsplit(url if "://" in url else f"//{url}")
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 4317), timeout=0.3):
            return True
    except OSError:
        return False


@dataclass(slots=True, kw_only=True)
class DemoCollector:
    """The collector, while it runs."""

    process: subprocess.Popen[bytes]
    file: Path
    """The OTLP JSON lines that it writes."""
    log: Path
    address: str = ""
    """Its OTLP/gRPC receiver."""
    page: str = ""
    """Its page of answers."""

    def wait(self) -> None:
        """Wait until it ends.

        Raises:
            RagtraceError: it ended.
        """
        self.process.wait()
        raise RagtraceError(f"the collector ended:\n{self.last_words}")

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return os.linesep.join(self.log.read_text("utf-8", "replace").splitlines()[-5:])

    def carriers(self) -> dict[str, Span]:
        """Return the carriers that were written so far, by trace id."""
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()
        return {one.trace_id: one for line in whole for one in decode_json(line) if is_carrier(one)}


@contextmanager
def running_collector(folder: Path, backend: Backend | None) -> Iterator[DemoCollector]:
    """Run a collector that replays the annotators, in a process of its own, configured as a user would.

    Traffic and carriers go to a file in ``folder``, and to the back end.

    Raises:
        RagtraceError: it did not start; its own message says why.
    """
    file, log = folder / "traces" / "traces.jsonl", folder / "collector.log"
    file.parent.mkdir()
    places = [f"otlp-file:{file}", *([backend.endpoint] if backend else [])]
    # Spans come at once: no need to wait for long. The store keeps them for ten minutes; a person may look
    # longer, so the page reads the file.
    links = {"Jaeger": backend.link("{trace_id}")} if backend and backend.ui else {}
    settings = {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "telemetry": {"listen": None},
        "assemble": {"quiet_period": "300ms", "deadline": "10s"},
        "judge": {"use": f"{__name__}:{open_people.__name__}"},
        "store": {"path": str(folder / "store.db")},
        "drain_timeout": "5s",
        "export": [{"endpoint": place, "forward": True} for place in places],
        "ui": {"listen": "127.0.0.1:0", "links": links, "traces": f"otlp-file:{file.parent}"},
    }
    config = folder / "collector.yaml"
    config.write_text(json.dumps(settings), "utf-8")  # JSON is YAML: no library is needed to write it
    command = [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(config), "--json"]
    with log.open("wb") as errors:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL)
    collector = DemoCollector(process=program, file=file, log=log)
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        if not line:
            raise RagtraceError(f"the collector did not start:\n{collector.last_words}")
        ports = json.loads(line)
        collector.address = f"http://127.0.0.1:{ports['grpc_port']}"
        collector.page = f"http://127.0.0.1:{ports['ui_port']}/"
        yield collector
    finally:
        with program:
            program.terminate()
            try:
                program.wait(_STOP_TIMEOUT_S)
            except BaseException:  # it takes too long, or a second Ctrl-C: at once, but not without it
                program.kill()
                raise


def ask(labeled: DemoAnswer) -> str:
    """Answer a question as when the sample was recorded; return the trace's id, in hex.

    It is instrumented as any application would be: a span for the call, the retrieval and the generation.
    """
    record = labeled.record
    passages = "\n\n".join(f"{chunk.id}: {chunk.text}" for chunk in record.chunks)
    messages = [
        {"role": "system", "content": "Answer the question from the passages alone."},
        {"role": "user", "content": f"{passages}\n\nQuestion: {labeled.question}"},
    ]
    with ragtrace.rag(question=labeled.question, name="ask") as call:
        with ragtrace.retrieval(query=labeled.question, data_source="ms-marco", top_k=3) as retrieval:
            retrieval.set_chunks(record.chunks)
        with ragtrace.generation(model=labeled.model, messages=messages) as generation:
            generation.set_answer(labeled.answer)
        call.set_answer(labeled.answer)
        return call.trace_id or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the run found."""

    sent: Mapping[str, DemoAnswer]
    """By trace id."""
    spans: Mapping[str, str | None]
    """The span of the answer in a trace that people judged."""
    verdicts: dict[str, Mapping[str, Evaluation]]
    """By judge, people first, and trace id."""
    backend: Backend | None

    @property
    def missing(self) -> int:
        """How many answers lack a result of a judge."""
        return sum(
            not all(isinstance(self.outcome(judge, each), MetricResult) for judge in self.verdicts)
            for each in self.sent
        )

    def outcome(self, judge: str, trace_id: str) -> MetricOutcome | None:
        """Return what a judge says of an answer."""
        evaluation = self.verdicts[judge].get(trace_id)
        return evaluation.outcomes[0] if evaluation else None

    def agreement(self, judge: str) -> dict[str, int]:
        """Count what a judge finds beside the labels of people, on the answers that it scored."""
        outcomes = {each: self.outcome(judge, each) for each in self.sent}
        pairs = [
            (bool(_findings(own)), any(one.label != "supported" for one in self.sent[each].claims))
            for each, own in outcomes.items()
            if isinstance(own, MetricResult) and own.score is not None
        ]
        return {
            "scored": len(pairs),
            "unscored": len(outcomes) - len(pairs),
            "agreed": sum(own == people for own, people in pairs),
            "flawed_to_both": pairs.count((True, True)),
            "flawed_to_judge_only": pairs.count((True, False)),
            "flawed_to_people_only": pairs.count((False, True)),
        }

    def wrong_claim(self) -> tuple[str, Verdict] | None:
        """Return what is worth a look: a claim with a quote that contradicts it, else any that failed."""
        found = [(each, one) for each in self.sent for one in _findings(self.outcome(PEOPLE.name, each))]
        return next((each for each in found if each[1].quote), found[0] if found else None)


def _play(sample: Sequence[DemoAnswer], collector: DemoCollector, backend: Backend | None) -> _Found:
    """Ask every question, and wait for the labels of people."""
    sent: dict[str, DemoAnswer] = {}
    os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "200")  # with the SDK's five seconds it would take long
    ragtrace.instrument(service_name="ragtrace-demo", endpoint=collector.address, protocol="grpc")
    try:
        for labeled in sample:
            sent[ask(labeled)] = labeled
            time.sleep(_PAUSE_S)
    finally:
        ragtrace.uninstrument()
    until = time.monotonic() + _PATIENCE_S
    while len(carriers := collector.carriers()) < len(sent) and time.monotonic() < until:
        time.sleep(_POLL_S)
    judged = {each: read_carrier(one, sent[each].record).judged.evaluation for each, one in carriers.items()}
    return _Found(
        sent=sent,
        spans={each: target_span_id(one) for each, one in carriers.items()},
        verdicts={PEOPLE.name: judged},
        backend=backend,
    )


async def _judged(sent: Mapping[str, DemoAnswer], named: str) -> dict[str, Evaluation]:
    async with aclosing(open_judge(named)) as judge:
        found = await asyncio.gather(*(evaluate(one.record, judge=judge) for one in sent.values()))
    return dict(zip(sent, found, strict=True))


def _findings(outcome: MetricOutcome | None) -> list[Verdict]:
    verdicts = outcome.verdicts if isinstance(outcome, MetricResult) else ()
    return sorted((one for one in verdicts if one.label in _WRONG), key=lambda one: _WRONG.index(one.label))


def _print_as_json(found: _Found) -> None:
    """Print a line for each answer and judge, people first, then the summary."""
    for trace_id, labeled in found.sent.items():
        place = {"trace_id": trace_id, "link": found.backend.link(trace_id) if found.backend else None}
        for evaluations in found.verdicts.values():
            if evaluation := evaluations.get(trace_id):
                outcome, judge = evaluation.outcomes[0], evaluation.judge
                print_line(to_json_line(outcome, record_id=labeled.id, judge=judge, further=place))
    _, *others = found.verdicts
    wrong = found.wrong_claim()
    print_json(
        {
            "summary": {
                "missing": found.missing,
                "agreements": {judge: found.agreement(judge) for judge in others},
                "wrong_claim": wrong and {"trace_id": wrong[0], "claim": wrong[1].claim.text},
            }
        }
    )


def _print(console: Console, found: _Found) -> None:
    """Print how far judges agree with people, and a wrong claim."""
    people, *others = found.verdicts
    labels = [found.outcome(people, each) for each in found.sent]
    flawed = sum(bool(_findings(one)) for one in labels)
    console.print(
        f"Verdicts: {people}, the annotators' own labels replayed:"
        f" {len(labels) - labels.count(None) - flawed} pass, {flawed} fail."
    )
    for judge in others:
        console.print(_compared(judge, found.agreement(judge)))
    if wrong := found.wrong_claim():
        trace_id, claim = wrong
        said = ", ".join(f"{judge}: {_word_on(claim, found.outcome(judge, trace_id))}" for judge in others)
        console.print(Text.assemble(("A wrong claim: ", "bold red"), f"“{_flat(claim.claim.text)}”"))
        console.print(Text.assemble(f"  {_why(claim)} ", (f"({said})", "dim")))
        if found.backend:
            console.print(f"Its trace: {found.backend.link(trace_id)}", soft_wrap=True)


def _compared(judge: str, counts: Mapping[str, int]) -> str:
    agreed, scored, unscored = counts["agreed"], counts["scored"], counts["unscored"]
    about = "Beside it lexical, a heuristic without a key," if judge == "lexical" else judge
    why = ": too few claims were clear to it" if judge == "lexical" else ""
    left = f" {unscored} have no score{why}." if unscored else ""
    if not scored:
        return f"{about} decided no answer: there is nothing to compare.{left}"
    low, high = wilson_interval(agreed, scored)
    return (
        f"{about} agrees with people on {agreed} of {scored} answers ({agreed / scored:.0%}; 95 % interval"
        f" {low:.0%} to {high:.0%}): {counts['flawed_to_people_only']} flaws missed,"
        f" {counts['flawed_to_judge_only']} false alarms.{left}"
    )


def _word_on(claim: Verdict, outcome: MetricOutcome | None) -> str:
    """Say what another judge says of the same claim."""
    own = one_line(claim.claim.text).casefold().rstrip(".")
    for said in outcome.verdicts if isinstance(outcome, MetricResult) else ():
        text = one_line(said.claim.text).casefold().rstrip(".")
        if (text in own or own in text) and said.label is not VerdictLabel.UNJUDGED:
            return said.label
    return "open"


def _why(one: Verdict) -> str:
    if one.label is VerdictLabel.UNSUPPORTED:
        return "not in the passages"
    where = f" by {one.chunk_ids[0]}" if one.chunk_ids else ""
    return f"contradicted{where}: “{_flat(one.quote)}”" if one.quote else f"contradicted{where}"


def _flat(text: str) -> str:
    return shortened(one_line(text), 159)
