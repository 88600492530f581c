"""What `ragtrace doctor` looks at in models: do they answer, and in which form are they asked?"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Final, Literal

from pydantic import BaseModel

from ragtrace.cli.doctor_checks import Check
from ragtrace.errors import ConfigError, JudgeError, JudgeNonsense, JudgeUnable
from ragtrace.judge import unwrapped
from ragtrace.judge.openai import OpenAICompatibleJudge
from ragtrace.metrics.judge_card import CardState, JudgeCard, card_of, read_card
from ragtrace.metrics.settings import VerifyForm, VerifySettings
from ragtrace.model import Chunk, MetricFailure, RagRecord
from ragtrace.pipeline.evaluation import evaluate
from ragtrace.pipeline.evaluator import EvaluatorSpec
from ragtrace.ports import Embedder, Judge, JudgeRequest, YesProbability

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
