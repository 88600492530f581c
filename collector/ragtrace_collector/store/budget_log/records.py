"""The records of the log, in JSON. What they mean is fixed by their version: a change needs the next one."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ragtrace.budget import Budget, BudgetWindow, Limit, Period, Spend
from ragtrace.errors import RagtraceError
from ragtrace_collector.store.budget_log.table import RecordId, amounts_of

VERSION: Final = 1
_MARK: Final = "ragtrace_budget"
"""The key of a record's version: what has none is not ours."""
_END: Final = 1 << 63
_LARGEST_STATE: Final = 64 << 20
_ERRORS: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error)


class NewerRecord(RagtraceError):
    """A record has a version that this ragtrace doesn't know, so it cannot say what is spent."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"a newer ragtrace writes records of version {version} into the log of the budget, and this one "
            f"reads up to version {VERSION}: upgrade this one"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveRecord:
    """A request that is about to be made, if the limits allow it."""

    id: RecordId
    budget: Budget
    estimate: Spend
    share: float
    now_ns: int
    """The clock of who writes it: it chooses the windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleRecord:
    """The actual cost of a request, as what is to be added to its estimate."""

    id: RecordId
    budget: str
    windows: tuple[BudgetWindow, ...]
    difference: Spend


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """The state of all that is before an offset."""

    id: RecordId
    as_of: int
    state: bytes
    """As `BudgetState.encode` writes it."""


Record = ReserveRecord | SettleRecord | CheckpointRecord


def encode_record(record: Record) -> bytes:
    """Return a record as the bytes of a message."""
    mark = {_MARK: VERSION, "process": record.id.process, "number": record.id.number}
    return json.dumps({**mark, **_fields(record)}, separators=(",", ":")).encode()


def decode_record(data: bytes | None) -> Record | None:
    """Read a record; ``None`` if it is not one: everybody skips it then.

    Raises:
        NewerRecord: it is one, of a later version.
    """
    try:
        read = json.loads(data or b"")
        version = _integer(read[_MARK], least=1)
    except _ERRORS:
        return None
    if version > VERSION:
        raise NewerRecord(version)
    try:
        return _record(read)
    except _ERRORS:
        return None


def _fields(record: Record) -> dict[str, Any]:
    match record:
        case ReserveRecord(budget=budget, estimate=estimate, share=share, now_ns=now_ns):
            return {
                "kind": "reserve",
                "budget": budget.name,
                "limits": {
                    period: [limit.calls, limit.tokens, limit.usd_nano]
                    for period, limit in budget.limits.items()
                },
                "estimate": amounts_of(estimate),
                "share": share,
                "now_ns": now_ns,
            }
        case SettleRecord(budget=name, windows=windows, difference=difference):
            return {
                "kind": "settle",
                "budget": name,
                "windows": [[window.period, window.start_ns] for window in windows],
                "difference": amounts_of(difference),
            }
        case CheckpointRecord(as_of=as_of, state=state):
            packed = base64.b64encode(zlib.compress(state)).decode()
            return {"kind": "checkpoint", "as_of": as_of, "state": packed}


def _record(read: Mapping[str, Any]) -> Record:
    id_ = RecordId(process=_text(read["process"]), number=_integer(read["number"]))
    match read["kind"]:
        case "reserve":
            return ReserveRecord(
                id=id_,
                budget=Budget(name=_text(read["budget"]), limits=_limits(read["limits"])),
                estimate=_spend(read["estimate"], least=0),
                share=_share(read["share"]),
                now_ns=_integer(read["now_ns"]),
            )
        case "settle":
            return SettleRecord(
                id=id_,
                budget=_text(read["budget"]),
                windows=tuple(_window(*each) for each in read["windows"]),
                difference=_spend(read["difference"], least=-_END),
            )
        case "checkpoint":
            return CheckpointRecord(id=id_, as_of=_integer(read["as_of"]), state=_state(read["state"]))
    raise ValueError("no kind of version 1")


def _limits(read: Mapping[str, Any]) -> dict[Period, Limit]:
    return {
        Period(period): Limit(
            calls=_limit(calls),
            tokens=_limit(tokens),
            usd_nano=_limit(usd_nano),
        )
        for period, (calls, tokens, usd_nano) in read.items()
    }


def _limit(read: object) -> int | None:
    return None if read is None else _integer(read)


def _spend(read: Any, *, least: int) -> Spend:
    calls, tokens, usd_nano = (_integer(each, least=least) for each in read)
    return Spend(calls=calls, tokens=tokens, usd_nano=usd_nano)


def _window(period: str, start_ns: object) -> BudgetWindow:
    window = Period(period).window(_integer(start_ns))
    if window.start_ns != start_ns:
        raise ValueError("no window begins there")
    return window


def _state(read: str) -> bytes:
    unpacking = zlib.decompressobj()
    state = unpacking.decompress(base64.b64decode(read, validate=True), _LARGEST_STATE)
    if not unpacking.eof:
        raise ValueError("a state is not so large")
    return state


def _share(read: object) -> float:
    if not isinstance(read, float | int) or not 0 <= read <= 1:
        raise ValueError("no share")
    return float(read)


def _integer(read: object, *, least: int = 0) -> int:
    if not isinstance(read, int) or isinstance(read, bool) or not least <= read < _END:
        raise ValueError("no such number")
    return read


def _text(read: object) -> str:
    if not isinstance(read, str):
        raise TypeError("no text")
    return read
