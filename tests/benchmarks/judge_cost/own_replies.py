"""What the stub says to a judge step."""

from __future__ import annotations

import json
import re

from tests.benchmarks.judge_cost.subject import CHUNKS, CLAIMS, QUOTES, SUPPORTING_CHUNK

_LINE = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
_CHUNK = re.compile(r"^<<chunk (\d+) [^>]*>>\n(.*)$", re.MULTILINE)


def own_reply(step: str, prompt: str) -> str:
    match step:
        case "extract":
            return json.dumps({"claims": [_claim(n) for n in range(1, len(CLAIMS) + 1)], "refusal": False})
        case "verify" | "recall":
            return json.dumps({"verdicts": [_verdict(int(n), text) for n, text in _LINE.findall(prompt)]})
        case "chunks":
            return json.dumps({"chunks": [_grade(int(n), text) for n, text in _CHUNK.findall(prompt)]})
        case "relevance":
            graded = [{"id": int(n), "relevance": "direct"} for n, _ in _LINE.findall(prompt)]
            return json.dumps({"statements": graded})
        case "retrieval":
            return json.dumps(
                {**json.loads(own_reply("chunks", prompt)), **json.loads(own_reply("recall", prompt))}
            )
        case _:
            raise AssertionError(step)


def _claim(number: int) -> object:
    text = CLAIMS[number - 1]
    return {"id": number, "sentence_ids": [number], "text": text, "kind": "factual"}


def _verdict(number: int, text: str) -> object:
    if text in CLAIMS:
        at = CLAIMS.index(text)
        evidence = {"chunks": [SUPPORTING_CHUNK[at]], "quote": QUOTES[at], "label": "supported"}
    elif holder := next((n for n, chunk in enumerate(CHUNKS, start=1) if text in chunk), 0):
        evidence = {"chunks": [holder], "quote": text[:80], "label": "supported"}
    elif "return" in text or "refund" in text:
        evidence = {"chunks": [1], "quote": QUOTES[0], "label": "supported"}
    else:
        evidence = {"chunks": [], "quote": "", "label": "not_mentioned"}
    return {"id": number, **evidence, "reason": ""}


def _grade(number: int, chunk: str) -> object:
    if chunk.startswith("About us"):
        return {"id": number, "reason": "The history of the shop; nothing about returns.", "relevance": 0}
    return {"id": number, "reason": "It holds a condition that the question asks for.", "relevance": 2}
