"""What `ragtrace doctor` looks at: each check reports what it found, and what to do about a problem."""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import re
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel

from ragtrace.backends import open_sink
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.render import many, one_line
from ragtrace.errors import ConfigError, JudgeError, JudgeNonsense, JudgeUnable, RagtraceError
from ragtrace.extras import install_command
from ragtrace.http import ClientTls
from ragtrace.judge import unwrapped
from ragtrace.judge.openai import OpenAICompatibleJudge
from ragtrace.judge_steps import VerifyForm
from ragtrace.metrics.judge_card import CardState, JudgeCard, card_of, read_card
from ragtrace.metrics.settings import VerifySettings
from ragtrace.model import Chunk, MetricFailure, RagRecord
from ragtrace.pipeline.evaluation import evaluate
from ragtrace.pipeline.evaluator import EvaluatorSpec
from ragtrace.ports import Embedder, Judge, JudgeRequest, YesProbability

if TYPE_CHECKING:
    from ragtrace_collector.config import StoreConfig
    from ragtrace_collector.config.values import KafkaConfig


_PACKAGES: Final = ("ragtrace-otel", "openai", "opentelemetry-sdk", "opentelemetry-exporter-otlp", "pydantic")
_EXTRAS: Final = {"collector": ("yaml", "starlette", "uvicorn", "httptools")}
EMPTY_EXPORT: Final = b""
"""A serialized ``ExportTraceServiceRequest`` without spans: valid, and nothing comes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None


def check_versions() -> Check:
    """Say what is installed."""
    parts = [f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in _PACKAGES)]
    missing = [
        extra for extra, modules in _EXTRAS.items() if not all(find_spec(module) for module in modules)
    ]
    if not missing:
        return Check(name="versions", status="ok", found=", ".join(parts))
    return Check(
        name="versions",
        status="warn",
        found=", ".join(parts),
        advice=f"not installed: {install_command(','.join(missing))}",
    )


async def check_endpoint(
    endpoint: str, *, headers: Mapping[str, str], tls: ClientTls | None = None, timeout_s: float, must: bool
) -> Check:
    """Send an export without spans. Unless it ``must`` be there, its absence is a warning."""
    name = f"export {endpoint}"
    if endpoint.startswith("otlp-file:"):
        return _check_folder(name, Path(endpoint.removeprefix("otlp-file:")))
    try:
        async with aclosing(open_sink(endpoint, headers=headers, tls=tls, timeout_s=timeout_s)) as sink:
            await sink.send(EMPTY_EXPORT)
    except RagtraceError as exc:
        status: Literal["warn", "fail"] = "fail" if must else "warn"
        advice = None if isinstance(exc, ConfigError) else _ENDPOINT_ADVICE
        return Check(name=name, status=status, found=str(exc), advice=advice)
    return Check(name=name, status="ok", found="took an export without spans")


_ENDPOINT_ADVICE: Final = (
    "is the back end running, and is this its OTLP port (4317 gRPC, 4318 HTTP)? "
    "With TLS the address begins with https:// or grpcs://"
)


def check_store(store: StoreConfig) -> Iterator[Check]:
    """Say whether a collector could use the store, or does, and in whose traces it read nothing.

    Nothing is created.
    """
    from ragtrace_collector.store.ledger import take_stock
    from ragtrace_collector.store.open import database_of

    if store.url is None:
        yield _check_file(store.file)
        if not store.file.exists():
            return
    try:
        database = database_of(store)
        unread = take_stock(database).unread
    except RagtraceError as exc:
        if store.url is not None:
            yield Check(name="store", status="fail", found=str(exc))
        return  # the check of the file says it
    if store.url is not None:
        yield Check(name=f"store {database.name}", status="ok", found="can be read")
    for each in unread:
        if each.number:
            of = one_line(each.producer) or "producers without a name"
            found = f"nothing was read in {many(each.number, 'trace')} of {of}"
            yield Check(name="unread", status="warn", found=found, advice=one_line(each.advice))


def check_topics(kafka: KafkaConfig) -> Iterator[Check]:
    """Say of each topic of spans or dead letters whether it is there, and deletes what is old."""
    with needs_extra("kafka"):
        from ragtrace_collector.receive.kafka_client import topic_states

    names = dict.fromkeys((*kafka.topics, *filter(None, map(kafka.dead_letter_topic, kafka.topics))))
    try:
        for topic in topic_states(kafka.client_settings(), [*names]):
            name, found = f"topic {topic.name}", topic.fault or many(topic.partitions, "partition")
            advice = f"kafka-topics.sh --create --topic {topic.name} --config cleanup.policy=delete"
            if topic.partitions:
                advice = f"kafka-configs.sh --alter --topic {topic.name} --add-config cleanup.policy=delete"
            yield Check(
                name=name,
                status="fail" if topic.fault else "ok",
                found=found,
                advice=f"{advice} --bootstrap-server {kafka.brokers[0]}" if topic.fault else None,
            )
    except RagtraceError as exc:
        yield Check(name="topics", status="fail", found=str(exc))


def _check_file(path: Path) -> Check:
    check = _check_folder(f"store {path}", path)
    if check.status == "ok" and _is_locked((real := path.resolve()).with_name(f"{real.name}.lock")):
        return Check(name=check.name, status="ok", found="in use by a collector that runs")
    return check


def _check_folder(name: str, path: Path) -> Check:
    folder = path.absolute().parent
    if path.is_dir():
        return Check(name=name, status="fail", found="is a folder", advice="name a file")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return Check(
            name=name, status="fail", found="cannot be written", advice="change its owner or its mode"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        why = "cannot be written" if folder.exists() else "does not exist"
        return Check(
            name=name, status="fail", found=f"the folder {folder} {why}", advice="make it, or name another"
        )
    return Check(name=name, status="ok", found="writable" if path.exists() else "can be created")


def _is_locked(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


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


async def check_judge(judge: Judge, *, timeout_s: float) -> Check:
    """Let the judge judge a sentence of our own."""
    name = f"judge {_who(judge)}"
    return await _bounded(_judged(judge, name), name=name, timeout_s=timeout_s)


async def _judged(judge: Judge, name: str) -> Check:
    outcome = (await evaluate(_probe(), judge=judge)).outcomes[0]
    if isinstance(outcome, MetricFailure):
        return _failed(name, outcome.error_type, outcome.message)
    inner = unwrapped(judge)
    mode = inner.output_mode if isinstance(inner, OpenAICompatibleJudge) else None
    takes = f"; takes a schema as {mode}" if mode else ""
    if outcome.score != 1:
        found = f"answers, but calls a sentence unsupported that the context repeats{takes}"
        return Check(name=name, status="warn", found=found, advice="choose a more capable model")
    is_lexical = judge.identity.provider == "lexical"
    ranker = "a heuristic that ranks by words: it leaves many claims unjudged" if is_lexical else ""
    found = ranker or f"judged a test sentence correctly{takes}"
    return Check(name=name, status="ok", found=found)


def check_card(judge: Judge, spec: EvaluatorSpec) -> Check:
    """Say what was measured of the judge, and whether it can be believed."""
    name = f"card of judge {_who(judge)}"
    try:
        card = card_of(judge.identity, [read_card(path) for path in spec.cards])
    except ConfigError as exc:
        return Check(name=name, status="fail", found=str(exc))
    if card is None:
        found = "no card: nobody measured this judge"
        advice = (
            "measure it on answers that people labeled: ragtrace calibrate LABELED.jsonl --card card.json"
        )
    elif card.state is CardState.BELOW_FLOOR:
        found = "below the floor: by its card no better than the share of a claim's words in the chunks"
        advice = "choose a more capable judge: this one's verdicts are worth no more than shared words"
    else:
        folded = (
            ""
            if card.contradicts_reliably
            else '; its "contradicted" is mostly wrong and counts as unsupported'
        )
        return Check(name=name, status="ok", found=f"measured: {_figures(card)}{folded}")
    refused = "; `require_card` refuses it" if spec.require_card else ""
    status: Literal["fail", "warn"] = "fail" if spec.require_card else "warn"
    return Check(name=name, status=status, found=f"{found}{refused}", advice=advice)


def _figures(card: JudgeCard) -> str:
    """Return the figure that a judge is compared with the floor by, for each file that was measured."""
    told = []
    for of in card.sets:
        if of.auc and of.digest:
            told.append(f"AUC {of.auc.value:.2f} on {of.name}")
        elif of.two_way and of.digest:
            told.append(f"balanced accuracy {of.two_way.value:.2f} on {of.name}")
    return ", ".join(told)


async def check_likelihoods(judge: Judge, verify: VerifySettings, *, timeout_s: float) -> Check:
    """Ask a language model for the probability of a *yes*, and say in which form it is asked for verdicts."""
    name = f"log-probabilities {_who(judge)}"
    return await _bounded(_likely(judge, verify, name), name=name, timeout_s=timeout_s)


async def _likely(judge: Judge, verify: VerifySettings, name: str) -> Check:
    try:
        p_yes = (await judge.ask(_question())).value.p_yes
    except JudgeUnable as exc:
        must = verify.form is VerifyForm.LOGPROBS
        return Check(
            name=name,
            status="fail" if must else "ok",
            found=str(exc) if must else f"none: verdicts are asked for as JSON (verify: {verify.form})",
            advice="set `verify: auto` or `verify: json`" if must else None,
        )
    except JudgeNonsense as exc:
        advice = "keep to `verify: json` with this model"
        return Check(name=name, status="warn", found=f"{exc.error_type}: {exc}", advice=advice)
    except JudgeError as exc:
        return _failed(name, exc.error_type, str(exc))
    return Check(name=name, status="ok", found=f"given (P(yes) = {p_yes:.2f}); {_form(verify)}")


def _form(verify: VerifySettings) -> str:
    asked = "as P(Yes), a claim a call" if verify.first_form is VerifyForm.LOGPROBS else "as JSON, in batches"
    why = {
        VerifyForm.AUTO: "verify: auto; `ragtrace calibrate` finds out which is better",
        VerifyForm.JSON: "verify: json",
        VerifyForm.LOGPROBS: "verify: logprobs",
    }
    return f"verdicts are asked for {asked} ({why[verify.form]})"


async def check_embedder(embedder: Embedder, *, must: bool, timeout_s: float) -> Check:
    """Embed two words. Unless it ``must`` be there, its absence is a warning."""
    name = f"embeddings {_who(embedder)}"
    return await _bounded(_embedded(embedder, name, must), name=name, timeout_s=timeout_s)


async def _embedded(embedder: Embedder, name: str, must: bool) -> Check:
    try:
        vectors = (await embedder.embed(["refund", "money back"])).vectors
    except JudgeError as exc:
        status: Literal["fail", "warn"] = "fail" if must else "warn"
        advice = (
            "only question similarity needs them: --set judge.embedder=wordllama works without an endpoint"
        )
        return Check(name=name, status=status, found=f"{exc.error_type}: {exc}", advice=advice)
    return Check(name=name, status="ok", found=f"vectors of {len(vectors[0])} numbers")


async def _bounded(check: Awaitable[Check], *, name: str, timeout_s: float) -> Check:
    try:
        async with asyncio.timeout(timeout_s):
            return await check
    except TimeoutError:
        return Check(
            name=name,
            status="fail",
            found=f"not finished within {timeout_s:g} s",
            advice="the model is slow or stuck: --set judge.timeout=5m, or choose a smaller model",
        )


def _failed(name: str, error_type: str, message: str) -> Check:
    advice = None if _SAYS_WHAT_TO_DO.search(message) else _ADVICE.get(error_type, _OTHERWISE)
    return Check(name=name, status="fail", found=f"{error_type}: {message}", advice=advice)


def _who(model: Judge | Embedder) -> str:
    return f"{model.identity.provider} ({model.identity.model})"


class _Nothing(BaseModel):
    """Only the prompt has the question: this request is for language models."""


def _question() -> JudgeRequest[YesProbability]:
    return JudgeRequest(
        step="doctor",
        system="Answer the question with one word: Yes or No.",
        user=f"{_CHUNK}\n\nDo refunds take 14 days? Answer Yes or No.",
        reply_type=YesProbability,
        inputs=_Nothing(),
        max_output_tokens=8,
    )


def _probe() -> RagRecord:
    return RagRecord(
        id="doctor",
        question="How long do refunds take?",
        chunks=(Chunk(id="faq-1", text=_CHUNK),),
        answer=_CHUNK,
    )
