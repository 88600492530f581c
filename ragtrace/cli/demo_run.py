"""One run of `ragtrace demo`: people as a judge, collectors, traffic through them, and the verdicts."""

from __future__ import annotations

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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

import ragtrace
from ragtrace.answers.carrier import is_carrier, read_carrier, target_span_id
from ragtrace.cli.demo import DemoOptions
from ragtrace.cli.options import needs_extra
from ragtrace.cli.render import (
    has_desktop,
    many,
    one_line,
    open_console,
    print_indented,
    print_json,
    shortened,
    talk,
)
from ragtrace.errors import ConfigError, InputError, JudgeUnable, RagtraceError
from ragtrace.judge import judge_named_by
from ragtrace.judge.spec import JudgeSettings
from ragtrace.judge_forms import (
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenVerdict,
    NumberedText,
    VerdictWord,
    VerifyInput,
    VerifyReply,
)
from ragtrace.model import (
    Chunk,
    JudgeIdentity,
    MetricOutcome,
    MetricResult,
    RagRecord,
    SkipReason,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.sentences import split_sentences
from ragtrace.stats import wilson_interval
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span

ReplyT = TypeVar("ReplyT", bound=BaseModel)

PEOPLE: Final = JudgeIdentity(provider="human", model="ragtruth", computes=True, is_human=True)
PEOPLE_NAME: Final = f"{PEOPLE.provider}:{PEOPLE.model}"
PEOPLE_JUDGE: Final = "ragtrace.cli.demo_run:open_people"
"""What a collector's `judge.use` calls it."""
_WORDS: Final[Mapping[str, VerdictWord]] = {
    "supported": "supported",
    "contradicted": "contradicted",
    "neutral": "not_mentioned",
}
_UNKNOWN: Final = "the annotators did not see this sentence"


class AnnotatedText(BaseModel, frozen=True):
    """What the annotators marked in a sentence."""

    text: str
    type: str
    """Their word for it: ``Evident Conflict``, ``Subtle Baseless Info``, …"""


class SampleEvidence(BaseModel, frozen=True):
    """What contradicts a sentence; not the annotators', but ragtrace's own."""

    context: str
    """The passage's id."""
    quote: str


class LabeledSentence(BaseModel, frozen=True):
    """A sentence of an answer, with what the annotators said of it."""

    text: str
    label: Literal["supported", "contradicted", "neutral"]
    marked: tuple[AnnotatedText, ...] = ()
    evidence: SampleEvidence | None = None


class _Passage(BaseModel, frozen=True):
    id: str
    text: str


class DemoAnswer(BaseModel, frozen=True):
    """A question, the passages retrieved for it, a model's answer, and what people said of it.

    `ragtrace calibrate` reads the same rows.
    """

    id: str
    question: str
    contexts: tuple[_Passage, ...]
    answer: str
    model: str
    claims: tuple[LabeledSentence, ...]
    """What the annotators labeled, in the order of the answer."""

    @property
    def record(self) -> RagRecord:
        """What a judge sees."""
        chunks = tuple(Chunk(id=one.id, text=one.text, rank=at) for at, one in enumerate(self.contexts))
        return RagRecord(id=self.id, question=self.question, chunks=chunks, answer=self.answer)

    @property
    def marked_sentences(self) -> tuple[str, ...]:
        """The sentences with a mark: without one, the answer is faithful."""
        return tuple(sentence.text for sentence in self.claims if sentence.label != "supported")


def load_sample() -> tuple[DemoAnswer, ...]:
    """Read the sample of RAGTruth that is shipped with ragtrace."""
    text = (files("ragtrace.cli") / "data" / "ragtruth_qa_sample.jsonl").read_text("utf-8")
    return tuple(map(DemoAnswer.model_validate_json, text.splitlines()))


def open_people(settings: JudgeSettings) -> Judge:
    """Open the judge; there is nothing to set."""
    return PeopleJudge(load_sample())


@dataclass(frozen=True, slots=True)
class PeopleJudge:
    """Repeats the labels of these answers."""

    sample: Sequence[DemoAnswer]
    identity: JudgeIdentity = field(default=PEOPLE, init=False)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer from the labels.

        Raises:
            JudgeUnable: the annotators were not asked this.
        """
        reply: JudgeReply[Any]
        match request.inputs:
            case ExtractInput() as given if request.reply_type is ExtractReply:
                reply = JudgeReply(value=self._claims(given.sentences), usage=Usage(calls=1))
            case VerifyInput() as given if request.reply_type is VerifyReply:
                reply = self._verdicts(given)
            case _:
                raise JudgeUnable(
                    f"the annotators labeled claims: they have no answer to the step {request.step!r}",
                    usage=Usage(),
                )
        return cast("JudgeReply[ReplyT]", reply)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _claims(self, sentences: Sequence[NumberedText]) -> ExtractReply:
        given = {(sentence.number, sentence.text) for sentence in sentences}
        own = ({(each.number, each.text) for each in split_sentences(one.answer)} for one in self.sample)
        labeled = next((one for one, parts in zip(self.sample, own, strict=True) if given <= parts), None)
        asked = {sentence.number for sentence in sentences}
        found = _covered(labeled) if labeled else ()
        claims = [
            ExtractedClaim(id=number, sentence_ids=sorted(covered & asked), text=text, kind="factual")
            for number, (text, covered) in enumerate(found, start=1)
            if covered & asked
        ]
        return ExtractReply(claims=claims, refusal=False)

    def _verdicts(self, given: VerifyInput) -> JudgeReply[VerifyReply]:
        shown = {chunk.text: chunk.number for chunk in given.chunks}
        labeled = next((a for a in self.sample if shown.keys() & {each.text for each in a.contexts}), None)
        said = {" ".join(each.text.split()): each for each in labeled.claims} if labeled else {}
        numbers = {each.id: shown.get(each.text) for each in labeled.contexts} if labeled else {}
        asked = {claim.number: " ".join(claim.text.split()) for claim in given.claims}
        known = {number: said[text] for number, text in asked.items() if text in said}
        unknown = asked.keys() - known.keys()
        return JudgeReply(
            value=VerifyReply(verdicts=[_verdict(number, known[number], numbers) for number in known]),
            usage=Usage(calls=1),
            abstained=frozenset(unknown),
            notes=dict.fromkeys(unknown, _UNKNOWN),
        )


def _covered(answer: DemoAnswer) -> Iterator[tuple[str, set[int]]]:
    """Yield the labeled sentences, with the numbers of ours that each overlaps."""
    parts, at = split_sentences(answer.answer), 0
    for labeled in answer.claims:
        start = answer.answer.index(labeled.text, at)
        at = start + len(labeled.text)
        yield labeled.text, {part.number for part in parts if part.start < at and part.end > start}


def _verdict(number: int, said: LabeledSentence, chunks: Mapping[str, int | None]) -> GivenVerdict:
    evidence = said.evidence
    cited = chunks.get(evidence.context) if evidence else None
    marked = " and ".join(f"“{shortened(part.text, 80)}” ({part.type})" for part in said.marked)
    looked_up = " They named no passage: ragtrace's authors looked up the quote." if evidence else ""
    return GivenVerdict(
        id=number,
        chunks=[] if cited is None else [cited],
        quote=evidence.quote if evidence else "",
        label=_WORDS[said.label],
        reason=f"The annotators marked {marked}.{looked_up}"[:400] if marked else "",
    )


PAGE_PORT: Final = 4330
_POLL_S: Final = 0.1
_STOP_TIMEOUT_S: Final = 30
_PATIENCE_S: Final = 120
"""Without a new verdict."""
_PAGE_TRIES: Final = 50
_LOCAL_OTLP: Final = "http://localhost:4317"
_WRONG: Final = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
_FINDINGS_SHOWN: Final = 2


def run_demo(options: DemoOptions) -> None:
    """Replay the traffic, and show what people and judges say of it.

    Raises:
        ConfigError: something that it needs is missing, or tracing is off.
        InputError: nothing listens at ``--to``.
        RagtraceError: an answer got no verdict.
    """
    with needs_extra("collector"):
        import uvicorn  # noqa: F401  the collector's process needs them: said before it is waited for
        import yaml  # noqa: F401
    for name in ("OTEL_SDK_DISABLED", "RAGTRACE_DISABLED"):
        if os.environ.get(name, "").lower() in {"1", "true", "yes", "on"}:
            raise ConfigError(f"{name} turns tracing off: without traces there is nothing to show; unset it")
    stays = options.stays
    if stays is None:
        stays = sys.stdin.isatty() and sys.stdout.isatty() and not options.json.wanted
    sample = load_sample()[: options.limit]
    backend = _find_backend(options.endpoint, options.ui)
    console = None if options.json.wanted else open_console()
    port = choose_port(PAGE_PORT if stays else 0)  # nobody goes to a page that ends at once
    if stays and port != PAGE_PORT:
        talk(f"port {PAGE_PORT} is taken: the page is on port {port}")
    with _ended_cleanly(), tempfile.TemporaryDirectory(prefix="ragtrace-demo-") as name:
        folder = Path(name)
        (folder / "traces").mkdir()
        judges = {PEOPLE_NAME: PEOPLE_JUDGE, "lexical": "lexical"}
        judges |= {named: named for named in (judge_named_by(os.environ),)}
        if console is not None:
            also = f" They also go to {backend.endpoint}." if backend else ""
            console.print(
                f"{many(len(sample), 'answer')} of RAGTruth {'flows' if len(sample) == 1 else 'flow'} through"
                f" an instrumented application and a collector.{also}"
            )
        with running_collectors(folder, judges, backend, page_port=port) as collectors:
            found = _play(sample, collectors, console, options)
            found.page, found.backend = f"http://127.0.0.1:{port}" if stays else "", backend
            _print_as_json(found) if console is None else _print(console, found, options)
            wrong = found.wrong_claim()
            url = found.page_of(wrong[0]) if wrong and stays else f"http://127.0.0.1:{port}"
            wait_for_page(url)
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
                    while True:
                        collectors.check()
                        time.sleep(_POLL_S)
    if found.missing:
        raise RagtraceError(
            f"{found.missing} of {many(len(sample), 'answer')} got no verdict, and none came for"
            f" {_PATIENCE_S} s: run `ragtrace doctor` to check that the judge answers"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A trace back end that gets the traffic and the verdicts."""

    endpoint: str
    ui: str | None
    """Where Jaeger's page is, if it is Jaeger."""

    def link(self, trace_id: str) -> str:
        """Say where a person sees the trace."""
        return (
            f"{self.ui.rstrip('/')}/trace/{trace_id}" if self.ui else f"trace {trace_id} in {self.endpoint}"
        )


def _find_backend(endpoint: str | None, ui: str | None) -> Backend | None:
    """Return the back end that was named, else the one that listens on localhost:4317, else ``None``."""
    if endpoint is None:
        if not _listens(_LOCAL_OTLP):
            return None
        endpoint = _LOCAL_OTLP
    if endpoint.startswith("otlp-file:"):
        return Backend(endpoint=endpoint, ui=ui)
    try:
        beside = f"http://{urlsplit(endpoint if '://' in endpoint else f'//{endpoint}').hostname}:16686"
        is_there = _listens(endpoint)
    except ValueError as exc:
        raise InputError(f"--to {endpoint}: {exc}") from exc
    if not is_there:
        raise InputError(
            f"--to {endpoint}: nothing listens there; start the back end first, or leave --to out"
        )
    return Backend(endpoint=endpoint, ui=ui or (beside if _listens(beside) else None))


def _listens(url: str) -> bool:
    parts = urlsplit(url if "://" in url else f"//{url}")
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 4317), timeout=0.3):
            return True
    except OSError:
        return False


def choose_port(preferred: int = PAGE_PORT) -> int:
    """Return a port of this machine that is free: the preferred one if it can be had."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", preferred))
        except OSError:
            server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def wait_for_page(url: str) -> None:
    """Wait until a page of this machine is there.

    Raises:
        RagtraceError: it does not come.
    """
    page = urlsplit(url)
    fault: OSError | None = None
    for _ in range(_PAGE_TRIES):
        try:
            with socket.create_connection((page.hostname, page.port), timeout=5):
                return
        except OSError as exc:
            fault = exc
        time.sleep(_POLL_S)
    raise RagtraceError(f"the page {url} cannot be shown: {fault}")


@contextmanager
def _ended_cleanly() -> Iterator[None]:
    """Let whoever ends the demo, or closes its terminal, end its collectors too."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda given, _: sys.exit(128 + given)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCollectors:
    """A collector for each judge, while they run."""

    address: str
    """The first one's OTLP/gRPC receiver."""
    verdicts: Mapping[str, VerdictFile]
    """By judge, what its collector wrote."""
    programs: Sequence[tuple[subprocess.Popen[bytes], Path]]
    """Each with its log."""

    def check(self) -> None:
        """Check that all run.

        Raises:
            RagtraceError: one ended.
        """
        for process, log in self.programs:
            if process.poll() is not None:
                raise RagtraceError(f"the collector ended:\n{_tail(log)}")


@contextmanager
def running_collectors(
    folder: Path, judges: Mapping[str, str], backend: Backend | None, *, page_port: int
) -> Iterator[RunningCollectors]:
    """Run a collector for each judge, in a process of its own and configured as a user would.

    The first has the page, and passes on every span to the others. Keys of ``judges`` are names for people:
    ``human:ragtruth``, ``lexical``; values are what the configuration calls them. Carriers, and with the
    first the traffic, go to files in ``folder/traces``.

    Raises:
        RagtraceError: one did not start; its own message says why.
    """
    names = [*judges]
    files = {name: folder / "traces" / f"verdicts-{number}.jsonl" for number, name in enumerate(names)}
    links = {"Jaeger": backend.link("{trace_id}")} if backend and backend.ui else {}

    def exports(name: str, *, forward: bool) -> list[dict[str, object]]:
        places = [f"otlp-file:{files[name]}", *([backend.endpoint] if backend else [])]
        return [{"endpoint": place, "forward": forward} for place in places]

    with ExitStack() as stack:

        def start(name: str, **more: object) -> tuple[subprocess.Popen[bytes], Path]:
            store = {"path": str(folder / f"{files[name].stem}.db")}
            config, log = folder / f"{files[name].stem}.yaml", folder / f"{files[name].stem}.log"
            # JSON is YAML: no library is needed to write it. Spans come at once: no need to wait for long.
            config.write_text(
                json.dumps(
                    {
                        "receive": {"grpc": "127.0.0.1:0", "http": None},
                        "telemetry": {"listen": None},
                        "assemble": {"quiet_period": "300ms", "deadline": "10s"},
                        "judge": {"use": judges[name]},
                        "evaluate": {"retry_delays": ["1s"]},
                        "store": store,
                        "drain_timeout": "5s",
                        **more,
                    }
                ),
                "utf-8",
            )
            command = [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(config), "--json"]
            with log.open("wb") as errors:
                process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL
                )
            stack.enter_context(process)
            stack.callback(_stop, process)
            return process, log

        # All at once: starting takes a second of CPU.
        others = [start(name, export=exports(name, forward=False)) for name in names[1:]]
        further = [{"endpoint": f"grpc://127.0.0.1:{_port(*one)}", "forward": True} for one in others]
        # The store keeps spans for ten minutes; a person may look longer.
        listen, traces = f"127.0.0.1:{page_port}", f"otlp-file:{folder / 'traces'}"
        page = {"listen": listen, "public_url": f"http://{listen}", "links": links, "traces": traces}
        first = start(names[0], export=[*exports(names[0], forward=True), *further], ui=page)
        yield RunningCollectors(
            address=f"http://127.0.0.1:{_port(*first)}",
            verdicts={name: VerdictFile(file) for name, file in files.items()},
            programs=[first, *others],
        )


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Wait until a collector is ready, and return its port for OTLP/gRPC."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise RagtraceError(f"the collector did not start:\n{_tail(log)}")
    return int(json.loads(line)["grpc_port"])


def _tail(log: Path) -> str:
    return os.linesep.join(log.read_text("utf-8", "replace").splitlines()[-5:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    except BaseException:  # a second Ctrl-C: at once, but not without it
        process.kill()
        raise


class VerdictFile:
    """The file of OTLP JSON lines that a collector writes; read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Span]:
        """Yield the carriers that were written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield from filter(is_carrier, decode_json(line.decode()))


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


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the run found."""

    sent: Mapping[str, DemoAnswer]
    """By trace id."""
    carriers: Mapping[str, Mapping[str, Span]]
    """By judge, people first, and trace id."""
    page: str = ""
    backend: Backend | None = None

    @property
    def complete(self) -> list[str]:
        """The traces on which every judge gave a verdict."""
        return [each for each in self.sent if all(each in carriers for carriers in self.carriers.values())]

    @property
    def missing(self) -> int:
        """The others."""
        return len(self.sent) - len(self.complete)

    def verdict(self, judge: str, trace_id: str) -> MetricOutcome:
        """Return what a judge says of an answer, as its carrier has it."""
        version = read_carrier(self.carriers[judge][trace_id], self.sent[trace_id].record)
        return version.judged.evaluation.outcomes[0]

    def agreement(self, judge: str) -> dict[str, int]:
        """Count what a judge finds beside the labels of people, on the answers that it scored."""
        verdicts = {each: self.verdict(judge, each) for each in self.complete}
        scored = {each: bool(_findings(one)) for each, one in verdicts.items() if _score(one) is not None}
        pairs = [(own, bool(self.sent[each].marked_sentences)) for each, own in scored.items()]
        return {
            "scored": len(pairs),
            "unscored": len(verdicts) - len(pairs),
            "agreed": sum(own == people for own, people in pairs),
            "flawed_to_both": pairs.count((True, True)),
            "flawed_to_judge_only": pairs.count((True, False)),
            "flawed_to_people_only": pairs.count((False, True)),
        }

    def wrong_claim(self) -> tuple[str, Verdict] | None:
        """Return what is worth a look: a claim with a quote that contradicts it, else any that failed."""
        found = [(each, one) for each in self.complete for one in _findings(self.verdict(PEOPLE_NAME, each))]
        return next((each for each in found if each[1].quote), found[0] if found else None)

    def page_of(self, trace_id: str) -> str:
        """Return the page of what people say, whoever else judged the answer."""
        carrier = self.carriers[PEOPLE_NAME][trace_id]
        return f"{self.page}/answers/{trace_id}/{target_span_id(carrier)}?version={carrier.span_id}"


def _play(
    sample: Sequence[DemoAnswer], collectors: RunningCollectors, console: Console | None, options: DemoOptions
) -> _Found:
    """Ask every question, and collect verdicts until all are there or none came for too long."""
    sent: dict[str, DemoAnswer] = {}
    carriers: dict[str, dict[str, Span]] = {judge: {} for judge in collectors.verdicts}
    found = _Found(sent=sent, carriers=carriers)
    status = None if console is None else console.status("")

    def collect() -> bool:
        news = [(judge, carrier) for judge, file in collectors.verdicts.items() for carrier in file.new()]
        for judge, carrier in news:
            carriers[judge][carrier.trace_id] = carrier
        if status is not None:
            of_all = many(len(sample), "answer")
            status.update(f"{len(sent)} of {of_all} sent, {len(found.complete)} judged ...")
        return bool(news)

    # The SDK's five seconds between exports would make the progress come in gusts.
    os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "200")
    with ExitStack() as stack:
        if status is not None:
            stack.enter_context(status)
        ragtrace.instrument(service_name="ragtrace-demo", endpoint=collectors.address, protocol="grpc")
        try:
            for labeled in sample:
                sent[ask(labeled)] = labeled
                collect()
                time.sleep(1 / options.rate)
        finally:
            ragtrace.uninstrument()
        last_news = time.monotonic()
        while found.missing and time.monotonic() - last_news < _PATIENCE_S:
            if collect():
                last_news = time.monotonic()
            time.sleep(_POLL_S)
    return found


def _findings(outcome: MetricOutcome) -> list[Verdict]:
    verdicts = outcome.verdicts if isinstance(outcome, MetricResult) else ()
    return sorted((one for one in verdicts if one.label in _WRONG), key=lambda one: _WRONG.index(one.label))


def _score(outcome: MetricOutcome) -> float | None:
    return outcome.score if isinstance(outcome, MetricResult) else None


def _print_as_json(found: _Found) -> None:
    """Print the answers, then the summary. What is not under ``evaluations`` is of the last judge."""
    judges = [*found.carriers]
    for trace_id in found.complete:
        labeled = found.sent[trace_id]
        evaluations = {judge: _as_json(found.verdict(judge, trace_id)) for judge in judges}
        marked = labeled.marked_sentences
        print_json(
            {
                "id": labeled.id,
                "trace_id": trace_id,
                "question": labeled.question,
                **evaluations[judges[-1]],
                "human": {"faithful": not marked, "marked_sentences": marked},
                "evaluations": evaluations,
                "link": found.backend.link(trace_id) if found.backend else None,
            }
        )
    agreements = {judge: found.agreement(judge) for judge in judges[1:]}
    wrong = found.wrong_claim()
    shown = wrong and {
        "trace_id": wrong[0],
        **_claim(wrong[1]),
        **({"page": found.page_of(wrong[0])} if found.page else {}),
    }
    summary = {"judge": judges[-1], "missing": found.missing, **agreements[judges[-1]]}
    print_json({"summary": {**summary, "agreements": agreements, "wrong_claim": shown}})


def _as_json(outcome: MetricOutcome) -> dict[str, Any]:
    verdicts = outcome.verdicts if isinstance(outcome, MetricResult) else ()
    return {
        "score": _score(outcome),
        "label": outcome.label,
        "claims": len(verdicts),
        "undecided": sum(one.label is VerdictLabel.UNJUDGED for one in verdicts),
        "failing_claims": [_claim(one) for one in _findings(outcome)],
    }


def _claim(one: Verdict) -> dict[str, object]:
    return {"claim": one.claim.text, "verdict": one.label, "chunk_ids": one.chunk_ids, "quote": one.quote}


def _print(console: Console, found: _Found, options: DemoOptions) -> None:
    """Print how far judges agree with people, and a wrong claim."""
    people, *others = found.carriers
    if options.table:
        _print_table(console, found)
    flawed = sum(bool(_findings(found.verdict(people, each))) for each in found.complete)
    console.print(
        f"Verdicts: {people}, the annotators' own labels replayed:"
        f" {len(found.complete) - flawed} pass, {flawed} fail."
    )
    for judge in others:
        console.print(_compared(judge, found.agreement(judge)))
    if found.missing:
        console.print(f"{many(found.missing, 'answer')} without a verdict.", style="yellow")
    if wrong := found.wrong_claim():
        trace_id, claim = wrong
        said = ", ".join(f"{judge}: {_word_on(claim, found.verdict(judge, trace_id))}" for judge in others)
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


def _word_on(claim: Verdict, outcome: MetricOutcome) -> str:
    """Say what another judge says of the same claim."""
    own = one_line(claim.claim.text).casefold().rstrip(".")
    for said in outcome.verdicts if isinstance(outcome, MetricResult) else ():
        text = one_line(said.claim.text).casefold().rstrip(".")
        if (text in own or own in text) and said.label is not VerdictLabel.UNJUDGED:
            return said.label
    return "open"


def _print_table(console: Console, found: _Found) -> None:
    def show(words: Sequence[str], question: str, style: str) -> None:
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for _ in words:
            table.add_column(width=15, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_row(*words, question)
        console.print(table, style=style)

    show([*found.carriers], "question", "bold")
    for trace_id in found.complete:
        verdicts = {judge: found.verdict(judge, trace_id) for judge in found.carriers}
        decided = [one for one in verdicts.values() if _score(one) is not None]
        parts = len({bool(_findings(one)) for one in decided}) > 1
        style = "red" if parts else "yellow" if len(decided) < len(verdicts) else ""
        show([*map(_word, verdicts.values())], found.sent[trace_id].question, style)
        for judge, verdict in verdicts.items():
            findings = _findings(verdict)
            for one in findings[:_FINDINGS_SHOWN]:
                said = f"{judge}: “{_flat(one.claim.text, 70)}” is {_why(one)}"
                print_indented(console, 4, said, style="dim")
            if (more := len(findings) - _FINDINGS_SHOWN) > 0:
                print_indented(console, 4, f"{judge}: {more} more in the trace", style="dim")
    console.print(
        "red: a judge and people part; yellow: a judge left too many claims open for a score\n", style="dim"
    )


def _word(outcome: MetricOutcome) -> str:
    """Say what became of an answer: ``pass 1.00``, ``fail 0.50``, or why it has no score."""
    score, skipped = _score(outcome), isinstance(outcome, MetricResult) and outcome.skip_reason
    word = SkipReason.UNDECIDED if skipped is SkipReason.ALL_UNJUDGED else skipped or outcome.label
    return word.replace("_", " ") if score is None else f"{word} {score:.2f}"


def _why(one: Verdict) -> str:
    if one.label is VerdictLabel.UNSUPPORTED:
        return "incidental: not in the passages" if one.is_incidental else "not in the passages"
    where = f" by {one.chunk_ids[0]}" if one.chunk_ids else ""
    return f"contradicted{where}: “{_flat(one.quote)}”" if one.quote else f"contradicted{where}"


def _flat(text: str, longest: int = 160) -> str:
    return shortened(one_line(text), longest - 1)
