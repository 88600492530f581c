"""Remembering what a judge said: the outermost layer.

What is asked is found again by its content: who judges, the step, the instructions, the material, the form of
the reply and the sampling. Where a request is about several items that are answered one by one (claims about
a set of chunks, chunks about a question), each item's answer is kept by itself, and only the items that are
not known are asked about. Errors are not kept; abstentions are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
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
"""Part of every key: changes when what is kept is written in another form."""
_WANTS_A_DRAW: Final = 0.1
"""Above this temperature a request wants one draw of several: the same draw each time would be none."""


def cached(judge: Judge, file: CacheFile, *, place: str = "") -> Judge:
    """Answer from the file what was answered before; such an answer has ``Usage(calls=0)``.

    Args:
        judge: Who is asked what is not known.
        file: Closed together with the judge.
        place: Where the judge is: the same model name means another model elsewhere.
    """
    return _Cached(judge, file, place)


def uncached(judge: Judge) -> Judge:
    """Return a judge without its cache: to find out whether it answers at all."""
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
    """The one list that a form consists of."""

    field: str
    entry: type[BaseModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """What the judge said about one item: an entry of its reply, or that it cannot decide."""

    entry: BaseModel | None
    note: str | None = None


class _ByItem(Generic[ReplyT]):
    """A request about items, each under a key of its own."""

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
        # of the prompt as it is, numbers and fences belong to the record; what it is made of does not
        shared = digest([*asked(request, who), about(()).inputs.model_dump()])
        self.keys = {number: digest([shared.hex(), text]) for number, text in request.items.items()}

    def known(self, found: Mapping[bytes, bytes]) -> dict[int, _Item]:
        """Read the items that were found."""
        here = {number: found[key] for number, key in self.keys.items() if key in found}
        read = {number: _read_item(kept, number, self._entries.entry) for number, kept in here.items()}
        return {number: item for number, item in read.items() if item}

    def kept(self, reply: JudgeReply[ReplyT], asked: Collection[int]) -> dict[bytes, bytes]:
        """Return what to keep: items that were answered once."""
        given = self._given(reply)
        times = Counter(_id(entry) for entry in given) + Counter(reply.abstained)
        once = {number for number in asked if times[number] == 1}
        items = {_id(entry): _Item(entry=entry) for entry in given}
        items |= {number: _Item(entry=None, note=reply.notes.get(number)) for number in reply.abstained}
        return {self.keys[number]: _write_item(items[number]) for number in once}

    def joined(self, known: Mapping[int, _Item], reply: JudgeReply[ReplyT] | None) -> JudgeReply[ReplyT]:
        """Put the known items and a reply about the others together, in the order of the request."""
        place = {number: index for index, number in enumerate(self.keys)}
        entries = [item.entry for item in known.values() if item.entry] + (
            self._given(reply) if reply else []
        )
        entries.sort(key=lambda entry: place.get(_id(entry), len(place)))
        passed = {number: item.note for number, item in known.items() if not item.entry}
        notes = {number: note for number, note in passed.items() if note is not None}
        return JudgeReply(
            # its entries were validated one by one; together they may be more than the form allows
            value=self.request.reply_type.model_construct(None, **{self._entries.field: entries}),
            usage=reply.usage if reply else Usage(),
            abstained=frozenset(passed) | (reply.abstained if reply else frozenset()),
            notes=notes | dict(reply.notes if reply else {}),
        )

    def _given(self, reply: JudgeReply[ReplyT]) -> list[BaseModel]:
        return [*getattr(reply.value, self._entries.field)]


def _is_believed(reply: JudgeReply[ReplyT], request: JudgeRequest[ReplyT]) -> bool:
    """Tell whether the planted claims of the request came out right: else nothing in the reply counts."""
    try:
        if request.check:
            request.check(reply.value)
    except JudgeCompromised:
        return False
    return True


def _material(request: JudgeRequest[Any]) -> Any:
    # a question about one claim is the same in the next record, but for the fence around it
    inputs = request.inputs
    if issubclass(request.reply_type, YesProbability) and type(inputs).model_fields:
        return [type(inputs).__qualname__, inputs.model_dump()]
    return request.user


@lru_cache(maxsize=256)
def _entries_of(reply_type: type[BaseModel]) -> _Entries | None:
    """Return the list of entries with an ``id`` that a form consists of, if it is no more than that."""
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
        told = json.loads(kept)
        if told["entry"] is None:
            return _Item(entry=None, note=told["note"])
        return _Item(entry=entry.model_validate({**told["entry"], "id": number}))
    except (ValueError, TypeError, KeyError):  # not of this form: as good as not there
        return None


def _write_item(item: _Item) -> bytes:
    # without its number: the next record counts its items in another way
    entry = item.entry.model_dump(by_alias=True, exclude={"id"}) if item.entry else None
    return as_json({"entry": entry, "note": item.note})
