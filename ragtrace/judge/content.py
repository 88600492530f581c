"""Requests and replies by content: equal requests have equal digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from ragtrace.model import DecidedBy, Usage
from ragtrace.ports import JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)


def asked(request: JudgeRequest[Any], who: list[Any]) -> list[Any]:
    """List the parts of a request except its material: who is asked, what for, and the form of the reply."""
    sampling = asdict(request.sampling) if request.sampling else None
    form: type[BaseModel] = request.reply_type
    return [*who, request.step, request.system, _form(form), sampling]


def digest(parts: list[Any]) -> bytes:
    """Return the SHA-256 of JSON values."""
    return hashlib.sha256(as_json(parts)).digest()


def as_json(value: Any) -> bytes:
    """Encode equal values to equal bytes."""
    return json.dumps(value, sort_keys=True, default=str).encode()  # ASCII: lone surrogates pass


def write_reply(reply: JudgeReply[Any]) -> bytes:
    """Encode the judge's reply without its usage."""
    value = reply.value.model_dump(by_alias=True)
    kept = {"value": value, "abstained": sorted(reply.abstained), "notes": dict(reply.notes)}
    sometimes = {"support": dict(reply.support), "decided_by": dict(reply.decided_by)}
    return as_json({**kept, **{name: said for name, said in sometimes.items() if said}})


def read_reply(
    kept: bytes, reply_type: type[ReplyT], *, usage: Usage | None = None
) -> JudgeReply[ReplyT] | None:
    """Decode what `write_reply` wrote; ``None`` (a miss) if it has another form."""
    try:
        stored = json.loads(kept)
        return JudgeReply(
            value=reply_type.model_validate(stored["value"]),
            usage=usage or Usage(),
            abstained=frozenset(stored["abstained"]),
            notes={int(number): note for number, note in stored["notes"].items()},
            support={int(number): support for number, support in stored.get("support", {}).items()},
            decided_by={int(number): DecidedBy(who) for number, who in stored.get("decided_by", {}).items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@lru_cache(maxsize=256)
def _form(reply_type: type[BaseModel]) -> str:
    return json.dumps([reply_type.__qualname__, reply_type.model_json_schema()], sort_keys=True)
