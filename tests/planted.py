"""Verdicts on the claims that a judge is asked about: its script's, and right ones on planted claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.gullible_model import chunks_in, numbered, sections

__all__ = ["answered"]


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
    shown = " ".join(" ".join(chunk.text.split()) for chunk in chunks_in(found))
    return {
        **reply,
        "verdicts": [
            scripted.get(claim.number) or _right(claim.number, in_chunks=claim.text in shown)
            for claim in numbered(found["claims"])
        ],
    }


def _right(number: int, *, in_chunks: bool) -> dict[str, Any]:
    label = "supported" if in_chunks else "not_mentioned"
    return {"id": number, "chunks": [1], "quote": "", "label": label, "reason": ""}
