"""One run of `ragtrace doctor`: each check reports what it found, and what to do about a problem."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from ragtrace.backends import open_sink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.cli.doctor import ApplicationOptions, TargetOptions
from ragtrace.cli.doctor_application import (
    Check,
    calls_json,
    captured_traces,
    check_capture,
    check_run,
    check_trace,
    run_app,
)
from ragtrace.cli.options import ChosenEvaluator
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json
from ragtrace.errors import ConfigError, JudgeError, JudgeNonsense, JudgeUnable, RagtraceError
from ragtrace.extras import install_command
from ragtrace.http import ClientTls
from ragtrace.judge import uncached, unwrapped
from ragtrace.judge.openai import LanguageModelJudge
from ragtrace.judge_steps import VerifyForm
from ragtrace.metrics.judge_card import check_card, read_card
from ragtrace.metrics.settings import VerifySettings
from ragtrace.model import Chunk, MetricFailure, RagRecord
from ragtrace.pipeline import EvaluatorSpec, evaluate
from ragtrace.ports import Embedder, Judge, JudgeRequest, YesProbability
from ragtrace.traces.otlp import encode

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace_collector.config import StoreConfig
    from ragtrace_collector.config.values import KafkaConfig


_PACKAGES: Final = ("ragtrace-otel", "openai", "opentelemetry-sdk", "opentelemetry-exporter-otlp", "pydantic")
_COLLECTOR: Final = ("yaml", "starlette", "uvicorn", "httptools")


def check_versions() -> Check:
    """Say what is installed."""
    parts = [f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in _PACKAGES)]
    advice = None if all(map(find_spec, _COLLECTOR)) else f"not installed: {install_command('collector')}"
    return Check("versions", "warn" if advice else "ok", ", ".join(parts), advice)


async def check_endpoint(
    endpoint: str, *, headers: Mapping[str, str], tls: ClientTls | None = None, timeout_s: float, must: bool
) -> Check:
    """Send an export without spans. Unless it ``must`` be there, its absence is a warning."""
    name = f"export {endpoint}"
    if endpoint.startswith("otlp-file:"):
        return _check_folder(name, Path(endpoint.removeprefix("otlp-file:")))
    try:
        access = ConnectionSettings(headers=headers, tls=tls, timeout_s=timeout_s)
        async with aclosing(open_sink(endpoint, access=access)) as sink:
            await sink.send(encode([]))
    except RagtraceError as exc:
        advice = None if isinstance(exc, ConfigError) else _ENDPOINT_ADVICE
        return Check(name, "fail" if must else "warn", str(exc), advice)
    return Check(name, "ok", "took an export without spans")


_ENDPOINT_ADVICE: Final = (
    "is the back end running, and is this its OTLP port (4317 gRPC, 4318 HTTP)? "
    "With TLS the address begins with https:// or grpcs://"
)


def check_store(store: StoreConfig) -> Iterator[Check]:
    """Say whether the store can be read or made, and in whose traces a collector read nothing."""
    from ragtrace_collector.store.ledger import take_stock
    from ragtrace_collector.store.open import database_of

    if store.url is None and not store.file.exists():
        yield _check_folder(f"store {store.file}", store.file)
        return
    try:
        database = database_of(store)
        unread = take_stock(database).unread
    except RagtraceError as exc:
        yield Check("store", "fail", str(exc))
        return
    yield Check(f"store {database.name}", "ok", "can be read")
    for each in unread:
        if each.number:
            of = one_line(each.producer) or "producers without a name"
            found = f"nothing was read in {many(each.number, 'trace')} of {of}"
            yield Check("unread", "warn", found, one_line(each.advice))


def check_topics(kafka: KafkaConfig) -> Iterator[Check]:
    """Say of each topic of spans or dead letters whether it is there, and deletes what is old."""
    from ragtrace_collector.receive.kafka import topic_states

    names = dict.fromkeys((*kafka.topics, *filter(None, map(kafka.dead_letter_topic, kafka.topics))))
    try:
        for topic in topic_states(kafka.client_settings(), [*names]):
            name = f"topic {topic.name}"
            if not topic.fault:
                yield Check(name, "ok", many(topic.partitions, "partition"))
                continue
            advice = f"kafka-topics.sh --create --topic {topic.name} --config cleanup.policy=delete"
            if topic.partitions:
                advice = f"kafka-configs.sh --alter --topic {topic.name} --add-config cleanup.policy=delete"
            yield Check(name, "fail", topic.fault, f"{advice} --bootstrap-server {kafka.brokers[0]}")
    except RagtraceError as exc:
        yield Check("topics", "fail", str(exc))


def _check_folder(name: str, path: Path) -> Check:
    folder = path.absolute().parent
    if path.is_dir():
        return Check(name, "fail", "is a folder", "name a file")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return Check(name, "fail", "cannot be written", "change its owner or its mode")
    if not os.access(folder, os.W_OK | os.X_OK):
        why = "cannot be written" if folder.exists() else "does not exist"
        return Check(name, "fail", f"the folder {folder} {why}", "make it, or name another")
    return Check(name, "ok", "writable" if path.exists() else "can be created")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


_CHUNK: Final = "Refunds take 14 days."
_ADVICE: Final = {
    "judge_unavailable": "is the server running, and is the base URL right (it usually ends in /v1)?",
    "judge_timeout": "the server is slow or stuck: --set judge.timeout=5m, or choose a smaller model",
    "judge_refused": "check the key, its quota, and the name of the model",
    "judge_nonsense": "the model does not follow the reply format: choose a more capable one",
    "judge_declined": "the model, or its content filter, refuses: choose another",
    "judge_cut_off": "the model exceeds its token limit: choose another",
    "judge_oversized": "the reply is longer than any model writes: is this the address of a model?",
    "judge_compromised": "the model gets simple facts wrong, or leaves them out: choose a more capable one",
}


_OTHERWISE: Final = "see what the judge's own log says"
_SAYS_WHAT_TO_DO: Final = re.compile(r"num_ctx|its certificate|it redirects|by TLS|\.onnx|tokenizer\.json")


async def check_judge(judge: Judge, name: str) -> Check:
    """Let the judge judge a sentence of our own."""
    record = RagRecord(
        id="doctor",
        question="How long do refunds take?",
        chunks=(Chunk(id="faq-1", text=_CHUNK),),
        answer=_CHUNK,
    )
    outcome = (await evaluate(record, judge=judge)).outcomes[0]
    if isinstance(outcome, MetricFailure):
        return _failed(name, outcome.error_type, outcome.message)
    inner = unwrapped(judge)
    mode = inner.output_mode if isinstance(inner, LanguageModelJudge) else None
    takes = f"; takes a schema as {mode}" if mode else ""
    if outcome.score != 1:
        found = f"answers, but calls a sentence unsupported that the context repeats{takes}"
        return Check(name, "warn", found, "choose a more capable model")
    if judge.identity.provider == "lexical":
        return Check(name, "ok", "a heuristic that ranks by words: it leaves many claims unjudged")
    return Check(name, "ok", f"judged a test sentence correctly{takes}")


def check_measured(judge: Judge, spec: EvaluatorSpec) -> Check:
    """Say whether the judge was measured, and can be believed."""
    name = f"card of judge {_who(judge)}"
    try:
        check_card(judge.identity, [read_card(path) for path in spec.cards])
    except ConfigError as exc:
        return Check(name, "fail" if spec.require_card else "warn", str(exc))
    return Check(name, "ok", "measured, and better than shared words")


class _Nothing(BaseModel):
    """Only the prompt has the question: this request is for language models."""


async def check_likelihoods(judge: Judge, verify: VerifySettings, name: str) -> Check:
    """Ask a language model for the probability of a *yes*, and say in which form it is asked for verdicts."""
    question = JudgeRequest(
        step="doctor",
        system="Answer the question with one word: Yes or No.",
        user=f"{_CHUNK}\n\nDo refunds take 14 days? Answer Yes or No.",
        reply_type=YesProbability,
        inputs=_Nothing(),
        max_output_tokens=8,
    )
    try:
        p_yes = (await judge.ask(question)).value.p_yes
    except JudgeUnable as exc:
        if verify.form is VerifyForm.LOGPROBS:
            return Check(name, "fail", str(exc), "set `verify: auto` or `verify: json`")
        return Check(name, "ok", f"none: verdicts are asked for as JSON (verify: {verify.form})")
    except JudgeNonsense as exc:
        return Check(name, "warn", f"{exc.error_type}: {exc}", "keep to `verify: json` with this model")
    except JudgeError as exc:
        return _failed(name, exc.error_type, str(exc))
    asked = "as P(Yes), a claim a call" if verify.first_form is VerifyForm.LOGPROBS else "as JSON, in batches"
    finds_out = "; `ragtrace calibrate` finds out which is better" if verify.form is VerifyForm.AUTO else ""
    form = f"verdicts are asked for {asked} (verify: {verify.form}{finds_out})"
    return Check(name, "ok", f"given (P(yes) = {p_yes:.2f}); {form}")


async def check_embedder(embedder: Embedder, name: str, *, must: bool) -> Check:
    """Embed two words. Unless it ``must`` be there, its absence is a warning."""
    try:
        vectors = (await embedder.embed(["refund", "money back"])).vectors
    except JudgeError as exc:
        works = "--set judge.embedder=wordllama works without an endpoint"
        advice = f"only question similarity needs them: {works}"
        return Check(name, "fail" if must else "warn", f"{exc.error_type}: {exc}", advice)
    return Check(name, "ok", f"vectors of {len(vectors[0])} numbers")


def _failed(name: str, error_type: str, message: str) -> Check:
    advice = None if _SAYS_WHAT_TO_DO.search(message) else _ADVICE.get(error_type, _OTHERWISE)
    return Check(name, "fail", f"{error_type}: {message}", advice)


def _who(model: Judge | Embedder) -> str:
    return f"{model.identity.provider} ({model.identity.model})"


_DEFAULT_ENDPOINT: Final = "http://localhost:4317"
_TIMEOUT_S: Final = 5.0
_SECTIONS: Final = ("judge", "evaluate", "export", "store", "receive")
_SHOWN_TRACES: Final = 20
_STYLE: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def check_application(application: ApplicationOptions, *, as_json: bool) -> bool:
    """Run an application, print what was captured, and say whether anything of it can be judged.

    Raises:
        ConfigError: it cannot be started.
    """
    command = application.app or ""
    run = run_app(command, stdout=sys.stderr if as_json else None)
    console = None if as_json else open_console()
    for check in (check_run(command, run), *check_capture(run)):
        _show(console, check)
    traces = asyncio.run(captured_traces(run))
    for number, captured in enumerate(traces):
        check = check_trace(captured, show_content=application.show_content)
        if console is None:
            print_json({**asdict(check), "calls": calls_json(captured, application.show_content)})
        elif number < _SHOWN_TRACES:
            _show(console, check)
    judged, found = sum(each.judged for each in traces), sum(len(each.calls) for each in traces)
    hidden = len(traces) - _SHOWN_TRACES
    advice = f"{many(hidden, 'other trace')} not shown: --json shows all" if hidden > 0 else None
    told = f"{many(len(traces), 'trace')}, {many(found, 'RAG call')}, of which {judged} will be judged"
    _show(console, Check("captured", "ok" if judged else "fail", told, advice))
    return judged > 0


def check_targets(targets: TargetOptions, *, as_json: bool) -> bool:
    """Print each check as it is done, and say whether none failed."""
    return asyncio.run(_check_targets(targets, as_json))


async def _check_targets(targets: TargetOptions, as_json: bool) -> bool:
    console, is_fine = None if as_json else open_console(), True
    async with aclosing(_checks(targets)) as checks:
        async for check in checks:
            is_fine = is_fine and check.status != "fail"
            _show(console, check)
    return is_fine


def _show(console: Console | None, check: Check) -> None:
    if console is None:
        print_json(asdict(check))
        return
    from rich.text import Text

    console.print(Text.assemble((f"{check.status:<4}", _STYLE[check.status]), "  ", one_line(check.name)))
    print_indented(console, 6, check.found)
    for line in (check.advice or "").splitlines():
        print_indented(console, 6, f"-> {line}")


async def _checks(targets: TargetOptions) -> AsyncGenerator[Check, None]:
    yield check_versions()
    path = targets.judge.config.path
    name = f"config {path}" if path else "settings"
    try:
        chosen = targets.judge.evaluator(only=_SECTIONS)
    except ConfigError as exc:
        yield Check(name, "fail", str(exc))
        return
    if path is not None:
        yield Check(name, "ok", "can be used")
    spec = chosen.spec
    secrets = {
        secret for judge in (spec.judge, spec.second, spec.embedder) if judge for secret in judge.secrets
    }
    secrets |= {value.get_secret_value() for to in chosen.config.export for value in to.headers.values()}
    long = [each for each in secrets if len(each) > 3]  # shorter ones occur by chance
    async for check in _reachable(targets, chosen):
        for secret in sorted(long, key=len, reverse=True):
            name, found = check.name.replace(secret, "***"), check.found.replace(secret, "***")
            check = Check(name, check.status, found, check.advice and check.advice.replace(secret, "***"))
        yield check


async def _reachable(targets: TargetOptions, chosen: ChosenEvaluator) -> AsyncGenerator[Check, None]:
    spec, config = chosen.spec, chosen.config
    try:
        judge = uncached(spec.judge.open())
    except ConfigError as exc:
        yield Check("judge", "fail", str(exc))
    else:
        async with aclosing(judge):
            async for check in _asked(judge, chosen):
                yield check
    must = config.judge.embedder is not None  # its absence is a failure only if somebody named it
    try:
        embedder = spec.embedder.open_embedder() if spec.embedder else None
    except ConfigError as exc:
        embedder = None
        if must:
            yield Check("embeddings", "fail", str(exc))
    if embedder is not None:
        async with aclosing(embedder):
            yield await check_embedder(embedder, f"embeddings {_who(embedder)}", must=must)
    is_configured = targets.judge.config.path is not None
    for export in config.export:
        headers = {name: value.get_secret_value() for name, value in export.headers.items()}
        tls = export.tls.opened() if export.tls else None
        yield await check_endpoint(export.endpoint, headers=headers, tls=tls, timeout_s=_TIMEOUT_S, must=True)
    must = bool(targets.endpoints)
    for endpoint in targets.endpoints or (() if is_configured or config.export else (_DEFAULT_ENDPOINT,)):
        if endpoint not in [export.endpoint for export in config.export]:
            yield await check_endpoint(endpoint, headers={}, timeout_s=_TIMEOUT_S, must=must)
    if is_configured:
        for check in check_store(config.store):
            yield check
    if config.receive.kafka is not None:
        for check in check_topics(config.receive.kafka):
            yield check


async def _asked(judge: Judge, chosen: ChosenEvaluator) -> AsyncGenerator[Check, None]:
    check = await check_judge(judge, f"judge {_who(judge)}")
    yield check
    if check.status != "fail" and not judge.identity.is_human:
        yield check_measured(judge, chosen.spec)
    if check.status != "fail" and not judge.identity.computes:
        verify = chosen.spec.limits(judge.identity).verify
        yield await check_likelihoods(judge, verify, f"log-probabilities {_who(judge)}")
