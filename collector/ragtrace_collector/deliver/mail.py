"""Mail between the shards of a cluster, as bytes: a line of JSON each, so that what is joined is a list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragtrace.conversations.span import SessionName
from ragtrace.errors import CodecError
from ragtrace_collector.store.port import KeptTurn, Mail

_ID_DIGITS: Final = 32
_MOST: Final = (1 << 63) - 1

Number = Annotated[int, Field(ge=0, le=_MOST)]


class _Form(BaseModel):
    # what a newer ragtrace adds is not known here, and left out
    model_config = ConfigDict(
        extra="ignore", strict=True, allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
    )


class _Turn(_Form):
    session: str
    tenant: str
    trace_id: str
    span_id: str
    start_ns: Number
    carrier_span_id: str
    supersedes: str
    turn: bytes
    place: bytes
    most_turns: Number


class _Body(_Form):
    to: Number
    turn: _Turn | None = None


class _Line(_Form):
    id: str
    mail: _Body


def encode_turn(kept: KeptTurn, *, to: int) -> bytes:
    """Return a judged turn as mail to the shard that has its session."""
    turn = _Turn(
        session=kept.name.session,
        tenant=kept.name.tenant,
        trace_id=kept.trace_id,
        span_id=kept.span_id,
        start_ns=kept.start_ns,
        carrier_span_id=kept.carrier_span_id,
        supersedes=kept.supersedes,
        turn=kept.turn,
        place=kept.place,
        most_turns=kept.most_turns,
    )
    return _line(_Body(to=to, turn=turn))


def decode_mail(payload: bytes) -> Sequence[tuple[Mail, bytes]]:
    """Read a list of mail, each with its own bytes, in order.

    Raises:
        CodecError: it is none.
    """
    lines = payload.splitlines(keepends=True)
    if not lines:
        raise CodecError("not mail: it is empty")
    try:
        read = [_Line.model_validate_json(line) for line in lines]
    except ValidationError as exc:  # its text quotes what it refuses
        raise CodecError("not mail: a line of it is no JSON object with the fields of mail") from exc
    return [(_mail(line), text) for line, text in zip(read, lines, strict=True)]


def _line(body: _Body) -> bytes:
    text = body.model_dump_json(exclude_defaults=True)
    id_ = hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]
    return _Line(id=id_, mail=body).model_dump_json(exclude_defaults=True).encode() + b"\n"


def _mail(line: _Line) -> Mail:
    body = line.mail
    return Mail(
        id=line.id,
        to=body.to,
        turn=_kept(body.turn) if body.turn else None,
    )


def _kept(turn: _Turn) -> KeptTurn:
    return KeptTurn(
        name=SessionName(session=turn.session, tenant=turn.tenant),
        trace_id=turn.trace_id,
        span_id=turn.span_id,
        start_ns=turn.start_ns,
        carrier_span_id=turn.carrier_span_id,
        supersedes=turn.supersedes,
        turn=turn.turn,
        place=turn.place,
        most_turns=turn.most_turns,
    )
