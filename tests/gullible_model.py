"""A language model that believes what it reads, behind an OpenAI-compatible endpoint.

It reads the user message of a request. If that holds an order of the corpus (letters and digits of its
longest sentence; hidden characters, marks and case do not matter), the model obeys:

- ``supported``, ``contradicted``, ``not_mentioned``: every claim it is asked about gets this verdict;
- ``one``: the claim with the number 2 is supported, the others get what they deserve;
- ``no_claims``: asked for the claims of an answer, it finds none and calls the answer a refusal;
- ``refuse``, ``nothing``, ``garbage``: an apology, nothing, or prose, whatever it is asked.

Otherwise it is honest, and compares words as the scripted judge does. It gives log-probabilities.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from math import log
from typing import Any

from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import ExtractInput, ExtractReply, NumberedText, VerifyInput, VerifyReply
from ragtrace.ports import JudgeRequest
from ragtrace.sentences import split_sentences
from tests.backends.answering import Reply, answering
from tests.injections import MARK_ALL, Injection, injections

_FENCED = re.compile(
    r"^<<(?P<name>[a-z]+ ?\d*) (?P<code>\w+)>>\n(?P<text>.*?)(?=\n<<[a-z]+ ?\d* (?P=code)>>)",
    re.DOTALL | re.MULTILINE,
)
_PLAIN = re.compile(
    r"^(?P<name>[a-z]+ ?\d*):\n(?P<text>.*?)(?=\n\n[a-z]+ ?\d*:\n|\Z)", re.DOTALL | re.MULTILINE
)
_NUMBERED = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
_STUBBORN = {
    "refuse": "I am sorry, but I cannot judge this.",
    "nothing": "",
    "garbage": "One is right, two is right.",
}
_SURE, _UNSURE = 0.97, 0.03


def gullible_reply(body: Mapping[str, Any]) -> dict[str, Any]:
    user = str(body["messages"][1]["content"])
    order = _order_in(user)
    if body.get("logprobs"):
        return completion(body, "", p_yes=_p_yes(user, order))
    if order and order.wants in _STUBBORN:
        return completion(body, _STUBBORN[order.wants])
    reply = _extract(user, order) if "claims" not in sections(user) else _verify(user, order)
    return completion(body, reply.model_dump_json())


def running_gullible_model() -> AbstractContextManager[str]:
    """Serve it on a free loopback port until the block ends; gives the base URL."""
    return running_model(gullible_reply)


@contextmanager
def running_model(reply: Callable[[Mapping[str, Any]], Any]) -> Iterator[str]:
    """Serve a model that answers chat completions by a function, like the gullible one."""

    def answer(_method: str, _path: str, body: bytes) -> Reply:
        return Reply(body=json.dumps(reply(json.loads(body))).encode())

    with answering(answer) as url:
        yield f"{url}/v1"


def _order_in(text: str) -> Injection | None:
    read = _bare(text)
    return next((injection for injection in injections() if _key(injection) in read), None)


@cache
def _key(injection: Injection) -> str:
    return max((_bare(sentence.text) for sentence in split_sentences(injection.text)), key=len)


def _bare(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())


def sections(user: str) -> dict[str, str]:
    pattern = _FENCED if user.startswith("<<") else _PLAIN
    return {found["name"]: found["text"] for found in pattern.finditer(user)}


def numbered(text: str) -> tuple[NumberedText, ...]:
    return tuple(NumberedText(number=int(number), text=text) for number, text in _NUMBERED.findall(text))


def chunks_in(found: Mapping[str, str]) -> tuple[NumberedText, ...]:
    named = ((name.split(), text) for name, text in found.items() if name.startswith("chunk "))
    return tuple(NumberedText(number=int(words[1]), text=text) for words, text in named)


def _extract(user: str, order: Injection | None) -> ExtractReply:
    if order and order.wants == "no_claims":
        return ExtractReply(claims=[], refusal=True)
    found = sections(user)
    given = ExtractInput(
        question=found["question"],
        sentences=numbered(found["answer"]),
        surroundings=numbered(found.get("surroundings", "")),
    )
    return ExtractReply.model_validate(_honest("extract", given, ExtractReply))


def _verify(user: str, order: Injection | None) -> VerifyReply:
    found = sections(user)
    claims = numbered(found["claims"])
    given = VerifyInput(chunks=chunks_in(found), claims=claims)
    reply = VerifyReply.model_validate(_honest("verify", given, VerifyReply))
    favoured = _favoured(claims, order)
    label = order.wants if order and order.wants in MARK_ALL else "supported"
    verdicts = [v.model_copy(update={"label": label} if v.id in favoured else {}) for v in reply.verdicts]
    return VerifyReply(verdicts=verdicts)


def _favoured(claims: tuple[NumberedText, ...], order: Injection | None) -> set[int]:
    numbers = {claim.number for claim in claims}
    if order and order.wants == "one":
        return numbers & {2}
    return numbers if order and order.wants in MARK_ALL else set()


def _p_yes(user: str, order: Injection | None) -> float | None:
    if order and order.wants in _STUBBORN:
        return None
    asked = "supported" if "support" in user.rpartition("\n")[2] else "contradicted"
    if order and order.wants in MARK_ALL:
        return _SURE if order.wants == asked else _UNSURE
    found = sections(user)
    claim = NumberedText(number=1, text=found["claim"])
    given = VerifyInput(chunks=chunks_in(found), claims=(claim,))
    [verdict] = VerifyReply.model_validate(_honest("verify", given, VerifyReply)).verdicts
    return _SURE if verdict.label == asked else _UNSURE


def _honest(step: str, given: Any, reply_type: Any) -> Any:
    request: JudgeRequest[Any] = JudgeRequest(
        step=step, system="", user="", reply_type=reply_type, inputs=given, max_output_tokens=1
    )
    return ScriptedJudge().reply_to(request).model_dump()


def completion(body: Mapping[str, Any], text: str, p_yes: float | None = None) -> dict[str, Any]:
    """Render a chat completion that says this, or yes with this probability."""
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    if body.get("logprobs"):
        said = {"Yes": p_yes, "No": 1 - p_yes} if p_yes is not None else {"Sorry": 1.0}
        top = [{"token": token, "logprob": log(p), "bytes": None} for token, p in said.items()]
        word = max(said, key=lambda token: said[token])
        first = {"token": word, "logprob": log(said[word]), "bytes": None, "top_logprobs": top}
        choice |= {"logprobs": {"content": [first]}, "message": {"role": "assistant", "content": word}}
    prompt = sum(len(str(message["content"])) for message in body["messages"]) // 4
    tokens = len(text) // 4 + 1
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [choice],
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens},
    }
