"""Verdicts on the claims that a judge is asked about: its script's, and right ones on planted claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragtrace.metrics._evidence import FoldedText
from tests.gullible_model import chunks_in, numbered, sections


def answered(reply: Any, request: Mapping[str, Any]) -> Any:
    """Return a scripted reply to a chat completion, with a right verdict on each further claim."""
    user = next(said["content"] for said in request["messages"] if said["role"] == "user")
    found = sections(user[user.find("\n<<") + 1 :] if not user.startswith("<<") else user)
    if isinstance(reply, dict) and "claims" in reply and "answer" in found:
        there = {sentence.number for sentence in numbered(found["answer"])}
        cited = [
            {**each, "sentence_ids": [number for number in each["sentence_ids"] if number in there]}
            for each in reply["claims"]
        ]
        return {**reply, "claims": [each for each in cited if each["sentence_ids"]]}
    if not isinstance(reply, dict) or "verdicts" not in reply or "claims" not in found:
        return reply
    scripted = {given["id"]: given for given in reply["verdicts"]}
    chunks = [" ".join(chunk.text.split()) for chunk in chunks_in(found)]
    return {
        **reply,
        "verdicts": [
            _verdict(claim.number, scripted.get(claim.number), claim.text, chunks)
            for claim in numbered(found["claims"])
        ],
    }


def _verdict(number: int, given: Any, claim: str, chunks: Sequence[str]) -> dict[str, Any]:
    is_shown = any(claim in chunk for chunk in chunks)
    if given is None or (is_shown and given["label"] != "supported"):  # of an answer with fewer claims
        label = "supported" if is_shown else "not_mentioned"
        return {"id": number, "chunks": [1], "quote": "", "label": label, "reason": ""}
    is_quoted = not given["quote"] or any(FoldedText(chunk).find(given["quote"]) for chunk in chunks)
    if given["label"] == "supported" and not is_quoted:
        return {**given, "chunks": [1], "quote": " ".join(chunks[0].split()[:5])}
    return dict(given)
