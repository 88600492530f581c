"""The cache layer, the outermost one.

The key of a request is its content: judge, step, instructions, material, form of the reply and sampling. If a
request has several items with independent answers (claims against a set of chunks, chunks against a
question), each answer is cached by itself, and the judge is asked only about the missing items. Errors are
not cached; abstentions are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel

from ragtrace.errors import JudgeCompromised
from ragtrace.judge._cache_file import CacheFile
from ragtrace.judge.content import as_json, asked, digest, read_reply, write_reply
from ragtrace.judge.layers import JudgeLayer
from ragtrace.model import Usage
from ragtrace.ports import FreeText, Judge, JudgeReply, JudgeRequest, YesProbability

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_VERSION: Final = 1
"""Part of every key: changes with the format of the entries."""
_WANTS_A_DRAW: Final = 0.1
"""Requests above this temperature are not cached: they need a new random draw each time."""


def cached(judge: Judge, file: CacheFile, *, place: str = "") -> Judge:
    """Answer repeated requests from the file; such an answer has ``Usage(calls=0)``.

    Args:
        judge: Answers what is not in the cache.
        file: The cache; closed together with the judge.
        place: The judge's endpoint: elsewhere the same name may be another model.
    """
    return _Cached(judge, file, place)


def uncached(judge: Judge) -> Judge:
    """Return a judge without its cache, for example to test whether the endpoint answers."""
    return judge.inner if isinstance(judge, _Cached) else judge


class _Cached(JudgeLayer):
    def __init__(self, judge: Judge, file: CacheFile, place: str) -> None:
        super().__init__(judge)
        self._file = file
        self._who = [_VERSION, *judge.identity.named, place]

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        if request.sampling and (request.sampling.temperature or 0.0) > _WANTS_A_DRAW:
            return await self.inner.ask(request)
        entries = _entries_of(request.reply_type)
        if entries and request.items and request.about:
            return await self._ask_by_item(_ByItem(request, request.about, entries, self._who))
        return await self._ask_whole(request)

    async def aclose(self) -> None:
        await self.inner.aclose()
        await self._file.aclose()

    async def _ask_whole(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        key = digest([*asked(request, self._who), _material(request), request.max_output_tokens])
        found = await self._file.get([key])
        if key in found and (known := read_reply(found[key], request.reply_type)):
            return known
        reply = await self.inner.ask(request)
        if not (isinstance(reply.value, FreeText) and reply.value.cut_off) and _is_believed(reply, request):
            await self._file.put({key: write_reply(reply)})
        return reply

    async def _ask_by_item(self, asking: _ByItem[ReplyT]) -> JudgeReply[ReplyT]:
        found = await self._file.get([*asking.keys.values()])
        known = asking.known(found)
        unknown = asking.keys.keys() - known.keys()
        if not unknown:
            return asking.joined(known, None)
        reply = await self.inner.ask(asking.request if not known else asking.about(unknown))
        if _is_believed(reply, asking.request):
            await self._file.put(asking.kept(reply, unknown))
        return asking.joined(known, reply)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The single list of a form."""

    field: str
    entry: type[BaseModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """The judge's answer about one item: an entry of its reply, or an abstention."""

    entry: BaseModel | None
    note: str | None = None
    support: float | None = None


class _ByItem(Generic[ReplyT]):
    """A request about items; each item has its own key."""

    def __init__(
        self,
        request: JudgeRequest[ReplyT],
        about: Callable[[Collection[int]], JudgeRequest[ReplyT]],
        entries: _Entries,
        who: list[Any],
    ) -> None:
        self.request = request
        self.about = about
        self._entries = entries
        # the prompt's numbers and fences differ from record to record; its inputs do not
        shared = digest([*asked(request, who), about(()).inputs.model_dump()])
        self.keys = {number: digest([shared.hex(), text]) for number, text in request.items.items()}

    def known(self, found: Mapping[bytes, bytes]) -> dict[int, _Item]:
        """Decode the cached items."""
        here = {number: found[key] for number, key in self.keys.items() if key in found}
        read = {number: _read_item(kept, number, self._entries.entry) for number, kept in here.items()}
        return {number: item for number, item in read.items() if item}

    def kept(self, reply: JudgeReply[ReplyT], asked: Collection[int]) -> dict[bytes, bytes]:
        """Return the entries to store: the items with exactly one answer."""
        given = self._given(reply)
        times = Counter(_id(entry) for entry in given) + Counter(reply.abstained)
        once = {number for number in asked if times[number] == 1}
        items = {_id(entry): _Item(entry=entry) for entry in given}
        items |= {number: _Item(entry=None, note=reply.notes.get(number)) for number in reply.abstained}
        support = reply.support
        return {
            self.keys[number]: _write_item(replace(items[number], support=support.get(number)))
            for number in once
        }

    def joined(self, known: Mapping[int, _Item], reply: JudgeReply[ReplyT] | None) -> JudgeReply[ReplyT]:
        """Join the cached items and the reply about the others, in the order of the request."""
        place = {number: index for index, number in enumerate(self.keys)}
        entries = [item.entry for item in known.values() if item.entry] + (
            self._given(reply) if reply else []
        )
        entries.sort(key=lambda entry: place.get(_id(entry), len(place)))
        passed = {number: item.note for number, item in known.items() if not item.entry}
        notes = {number: note for number, note in passed.items() if note is not None}
        support = {number: item.support for number, item in known.items() if item.support is not None}
        return JudgeReply(
            # the entries were validated singly; together they may exceed the form's limit
            value=self.request.reply_type.model_construct(None, **{self._entries.field: entries}),
            usage=reply.usage if reply else Usage(),
            abstained=frozenset(passed) | (reply.abstained if reply else frozenset()),
            notes=notes | dict(reply.notes if reply else {}),
            support=support | dict(reply.support if reply else {}),
        )

    def _given(self, reply: JudgeReply[ReplyT]) -> list[BaseModel]:
        return [*getattr(reply.value, self._entries.field)]


def _is_believed(reply: JudgeReply[ReplyT], request: JudgeRequest[ReplyT]) -> bool:
    """Return whether the request's canary claims were judged correctly; if not, the reply is not cached."""
    try:
        if request.check:
            request.check(reply.value)
    except JudgeCompromised:
        return False
    return True


def _material(request: JudgeRequest[Any]) -> Any:
    # a claim's questions differ between records only in their fences
    inputs = request.inputs
    if issubclass(request.reply_type, YesProbability) and type(inputs).model_fields:
        return [type(inputs).__qualname__, inputs.model_dump()]
    return request.user


@lru_cache(maxsize=256)
def _entries_of(reply_type: type[BaseModel]) -> _Entries | None:
    """Return the form's list of entries with an ``id`` if it has no other field."""
    if len(reply_type.model_fields) != 1:
        return None
    [(name, info)] = reply_type.model_fields.items()
    kind = next(iter(get_args(info.annotation)), None)
    if get_origin(info.annotation) is not list or not isinstance(kind, type):
        return None
    return _Entries(field=name, entry=kind) if "id" in getattr(kind, "model_fields", {}) else None


def _id(entry: BaseModel) -> int:
    return cast(int, getattr(entry, "id"))  # noqa: B009  `_entries_of` has seen that it is there


def _read_item(kept: bytes, number: int, entry: type[BaseModel]) -> _Item | None:
    try:
        stored = json.loads(kept)
        if stored["entry"] is None:
            return _Item(entry=None, note=stored["note"], support=stored.get("support"))
        given = entry.model_validate({**stored["entry"], "id": number})
        return _Item(entry=given, support=stored.get("support"))
    except (ValueError, TypeError, KeyError):  # another form: a miss
        return None


def _write_item(item: _Item) -> bytes:
    # without its number: the next record numbers its items differently
    entry = item.entry.model_dump(by_alias=True, exclude={"id"}) if item.entry else None
    kept = {"entry": entry, "note": item.note}
    return as_json(kept if item.support is None else {**kept, "support": item.support})
