"""What a convention is: a table of the spans that it describes and of where they hold a RAG call's parts.

The conventions that ragtrace knows and a user's mapping have this same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

from ragtrace.model import AttributeValue, Chunk, SkipReason
from ragtrace.traces.extract._citations import FoundCitation, citations_in, may_cite
from ragtrace.traces.extract._content import (
    ContentDamage,
    FoundValue,
    Place,
    best,
    broken_damage,
    cut_damage,
    found_text,
    in_camel_case,
    is_broken_json,
    is_cut_by_tempo,
    parse_loosely,
    text_of,
)
from ragtrace.traces.extract._documents import (
    MAX_CHUNKS,
    chunk_of,
    find_documents,
    is_unnamed,
    named_as,
    plain,
    too_many,
    with_text_damage,
    without_marks,
)
from ragtrace.traces.extract._messages import (
    Message,
    event_messages,
    final_result,
    hosted_documents,
    last_answer_text,
    last_user_text,
    may_hold_results,
    message_text,
    messages_of,
    tool_messages,
)
from ragtrace.traces.extract._payload import (
    answer_in,
    documents_in,
    handed_documents,
    handed_on,
    prompt_in,
    question_in,
    returned_documents,
    texts_for_synthesis,
    tool_documents,
)
from ragtrace.traces.extract._span_reader import Role, SpanReading, ToolResult
from ragtrace.traces.trace import Span

_LONGEST_INDEX = 6
Fields = Mapping[str, AttributeValue]


def has_prefix(span: Span, prefix: str) -> bool:
    """Return whether any element of the list is present."""
    return any(key.startswith(f"{prefix}.") for key in span.attributes)


def unflattened(attributes: Fields, prefix: str, item: str = "") -> dict[int, Fields]:
    """Rebuild the elements of ``prefix.<i>.item.<field>`` by index. Indices keep their gaps."""
    start = f"{prefix}." if prefix else ""
    inner = f"{item}." if item else ""
    found: dict[int, dict[str, AttributeValue]] = {}
    for key in [key for key in attributes if key.startswith(start)]:
        index, _, rest = key[len(start) :].partition(".")
        if (
            index.isascii()
            and index.isdigit()
            and len(index) <= _LONGEST_INDEX
            and rest.startswith(inner)
            and len(rest) > len(inner)
        ):
            found.setdefault(int(index), {})[rest[len(inner) :]] = attributes[key]
    return {index: found[index] for index in sorted(found)}


def flat_messages(span: Span, prefix: str, item: str = "") -> tuple[Message, ...]:
    """Read chat messages in the common form."""
    return tuple(_message(fields) for fields in unflattened(span.attributes, prefix, item).values())


def flat_documents(
    span: Span, documents: Mapping[int, Fields], at: Place
) -> FoundValue[tuple[Chunk, ...]] | None:
    """Read rebuilt documents, and report dropped ones."""
    if not documents:
        return None
    indices = sorted(documents)[:MAX_CHUNKS]
    chunks = tuple(chunk_of(documents[index], index, span.span_id) for index in indices)
    damage = (
        too_many(len(documents), f"`{at.attribute}` holds")
        or _dropped(span, documents, at.attribute)
        or (cut_damage(at.attribute) if any(is_cut_by_tempo(each.text or "") for each in chunks) else None)
        or with_text_damage(chunks, at.attribute)
    )
    return FoundValue(without_marks(chunks), at, f"{len(chunks)} documents", damage)


def _message(fields: Fields) -> Message:
    """Read ``content`` or ``contents.<j>.message_content.*``, and ``tool_calls.<k>.tool_call.*``."""
    plain = {key: value for key, value in fields.items() if "." not in key}
    if len(plain) == len(fields):
        return plain
    parts = unflattened(fields, "contents", "message_content")
    calls = unflattened(fields, "tool_calls", "tool_call") or unflattened(fields, "tool_calls")
    if parts and "content" not in plain:
        plain["content"] = tuple(parts.values())
    if calls:
        plain["tool_calls"] = tuple(
            {"id": each.get("id"), "name": each.get("function.name", each.get("name"))}
            for each in calls.values()
        )
    return plain


def _dropped(span: Span, documents: Mapping[int, object], attribute: str) -> ContentDamage | None:
    missing = max(documents) + 1 - len(documents)
    if not missing and not span.dropped_attributes_count:
        return None
    detail = (
        f"{span.dropped_attributes_count} attributes of the span were dropped and {missing} documents of "
        f"`{attribute}` are missing: raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
    )
    return ContentDamage(SkipReason.INCOMPLETE, detail)


_Step: TypeAlias = str | int | None
"""A key, an index, or ``None`` for every element."""

_SEGMENT: Final = re.compile(r"(?P<name>[^.\[\]\s]+)|\[(?P<index>-?\d{1,6})?\]")
_PATH: Final = re.compile(r"[^.\[\]\s]+(\[(-?\d{1,6})?\])*(\.[^.\[\]\s]+(\[(-?\d{1,6})?\])*)*")
_ALL: Final = "*"
_SDK_EVENTS: Final = 128
_PLAIN_TEXT: Final = "text/plain"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class AttributePath:
    """Where a value is: ``app.result``, ``app.result.hits[0].text``, ``retrieval.documents.*.document``.

    The longest prefix that is an attribute of the span, else of one of its events, is the attribute; the rest
    are keys and indices in its value. ``[]`` means every element of a list, ``[-1]`` the last. A prefix
    ``name/`` looks at events of that name only, and ``name/*`` is a list of all of them. ``.*`` is a list
    that was flattened into attributes.
    """

    text: str
    _event: str = field(init=False, repr=False, compare=False)
    _splits: tuple[tuple[str, tuple[_Step, ...]], ...] = field(init=False, repr=False, compare=False)
    prefix: str = field(init=False, repr=False, compare=False)
    """The prefix of a flattened list."""
    item: str = field(init=False, repr=False, compare=False)
    keys: frozenset[str] = field(init=False, repr=False, compare=False)
    """The attributes that may hold it, or ``prefix.*``."""

    def __post_init__(self) -> None:
        """Check the form.

        Raises:
            ValueError: the form is wrong; the message shows a valid path.
        """
        event, slash, path = self.text.rpartition("/")
        prefix, star, item = path.partition(".*")
        if not (_PATH.fullmatch(path) or path == _ALL) or (slash and not event):
            raise ValueError(
                f"{self.text!r} is not an attribute path: write `app.question` or `app.hits[0].text`"
            )
        segments = list(_SEGMENT.finditer(path))
        splits = tuple(
            (path[: segments[count - 1].end()], tuple(_step(each) for each in segments[count:]))
            for count in range(len(segments), 0, -1)
        )
        of_path = {
            "_event": event,
            "_splits": splits,
            "keys": frozenset([f"{prefix}.*"] if star else [key for key, _ in splits]),
            "prefix": prefix if star else "",
            "item": item.removeprefix("."),
        }
        for name, value in of_path.items():
            object.__setattr__(self, name, value)

    def find_on(self, span: Span) -> AttributeValue:
        """Return the value at the path, or ``None``."""
        if _ALL in self.keys:
            return _of_events(span, self._event)
        if not self._event and (found := self.find(span.attributes)) is not None:
            return found
        for event in span.events:
            if not self._event or event.name == self._event:
                found = self.find(event.attributes)
                if found is not None:
                    return found
        return None

    def find(self, attributes: Mapping[str, AttributeValue]) -> AttributeValue:
        """Return the value in these attributes, or ``None``."""
        if attributes.keys().isdisjoint(self.keys):
            return None
        for key, steps in self._splits:
            if key in attributes:
                found = _walk(attributes[key], steps)
                if found is not None:
                    return found
        return None


def _of_events(span: Span, name: str) -> AttributeValue:
    """Return the attributes of events, without the event's name before each key."""
    found = [event.attributes for event in span.events if event.name == name]
    listed = [{key.removeprefix(f"{name}."): value for key, value in each.items()} for each in found]
    return (
        tuple(
            {**each, "entity": parse_loosely(each["entity"])} if isinstance(each.get("entity"), str) else each
            for each in listed
        )
        or None
    )


Places: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRule:
    """How a span's role shows: by an attribute's value, its mere presence, the span's or an event's name."""

    at: str
    """An attribute; ``@name`` is the span's name, ``@event`` the names of its events."""
    roles: Mapping[str, Role | None] = field(default_factory=dict)
    """By value, or by it in lower case. Without any, ``other`` is that of every span with the attribute."""
    ends: bool = False
    """Whether the values are endings."""
    other: Role | None = None
    when: Callable[[Span], bool] | None = None
    """A further condition."""

    def role(self, span: Span) -> tuple[bool, Role | None]:
        """Return whether the kind is told here, and the role."""
        for value in self._values(span):
            if self.when is not None and not self.when(span):
                continue
            if not self.roles:
                return True, self.other
            if self.ends:
                ended = next((end for end in self.roles if value.endswith(end)), None)
                return True, self.other if ended is None else self.roles[ended]
            if (key := value if value in self.roles else value.lower()) in self.roles:
                return True, self.roles[key]
            if self.other is not None:
                return True, self.other
        return False, None

    def _values(self, span: Span) -> Iterable[str]:
        value = span.attributes.get(self.at)
        if value is not None:
            return (value.strip('"') if isinstance(value, str) else "",)
        if self.at == "@name":
            return (span.name,)
        if self.at == "@event":
            return [event.name for event in span.events]
        return ("",) if self.at.endswith(".*") and has_prefix(span, self.at[:-2]) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One convention, or a user's mapping. Of several places, the first undamaged text counts."""

    name: str
    kinds: tuple[SpanRule, ...] = ()
    """The first that fits gives the role."""
    without_input: Role | None = Role.CALL
    """The role of a call that does not say what it was asked: frameworks write such spans of inner steps."""
    input: Places = ()
    """The question of a call; the query of a retrieval, a reranker or a tool."""
    output: Places = ()
    """The answer of a call; the documents of a retrieval, a reranker or a tool."""
    messages: Places = ()
    """A model's input, instead of ``input``."""
    system: Places = ()
    """A model's instructions, if they are not among its messages."""
    reply: Places = ()
    """A model's output messages: the first with text is the answer."""
    question: Places = ()
    """The question of a call, before ``input``."""
    query: Places = ()
    """The query of a retrieval, before ``input``."""
    documents: Places = ()
    """The documents of a retrieval, instead of ``output``."""
    answer: Places = ()
    """The answer of a call or a model, before ``output``."""
    arguments: Places = ()
    result: Places = ()
    """A tool's own input and output, before ``input`` and ``output``."""
    ranking: tuple[tuple[str, str], ...] = ()
    """Documents, and the list of ``{"index", "relevanceScore"}`` that orders them."""
    handed_on: Places = ()
    """Documents that another step was given, with ids that the retrieval does not have."""
    hosted: Places = ()
    """Lists of documents that the model's provider found, or that the request gave it."""
    envelopes: Places = ()
    """Of a model's request and response, what may hold such documents beside messages and output."""
    tool: Places = ()
    """The tool's name; without one, the span's name."""
    model: Places = ()
    response_id: Places = ()
    session: Places = ()
    conversation: Places = ()
    prompt_version: Places = ()
    reference: Places = ()
    reference_ids: Places = ()
    is_additive: bool = False
    """Whether the parts count on spans of another convention, too."""
    verbatim: bool = False
    """Whether texts are taken as they are: no JSON, no message is looked for in them."""
    of_any_role: bool = False
    """Whether the parts count on any span: a user named them."""

    @property
    def tells(self) -> frozenset[str]:
        """The attributes that tell a span's kind, ``prefix.*``, ``@name`` or ``@event``."""
        return frozenset(kind.at for kind in self.kinds)

    def attributes(self, *without: str) -> frozenset[str]:
        """Return the attributes that may hold its parts, but for some parts."""
        places = (place for part in _PARTS if part not in without for place in getattr(self, part))
        return frozenset[str]().union(*(_path(place).keys for place in places if place[0] != "@"))

    def on(self, names: frozenset[str]) -> Convention:
        """Return the part of the table that counts on spans with these attributes, or with events that have
        them: what is not there, is not looked for."""
        has_events = "@event" in names
        places: dict[str, Any] = {
            part: tuple(
                each
                for each in getattr(self, part)
                if _path(each).keys & names or (has_events and (each[0] == "@" or each.endswith("/*")))
            )
            for part in _PARTS
            if part not in ("documents", "output")  # the one counts instead of the other
        }
        kinds = tuple(kind for kind in self.kinds if kind.at in names)
        return replace(self, kinds=kinds, **places)

    def role(self, span: Span) -> tuple[bool, Role | None]:
        """Return whether the convention tells the span's kind, and the role that it gives."""
        for kind in self.kinds:
            told, role = kind.role(span)
            if not told:
                continue
            is_inner = role is Role.CALL and self.without_input is not Role.CALL
            if is_inner and all(_find(span, place) is None for place in (*self.question, *self.input)):
                return True, self.without_input
            if role is Role.CALL and self.synthesized(span):
                return True, Role.RERANK
            return True, role
        return False, None

    def synthesized(self, span: Span) -> AttributeValue:
        """Return the texts that LlamaIndex's synthesizer was given: they are the final chunks."""
        return next((texts for key in self.input if (texts := texts_for_synthesis(span, key))), None)


class Reader:
    """Reads the parts of a RAG call from a span, as a convention's table says."""

    def __init__(self, table: Convention, span: Span) -> None:
        self.table, self.span = table, span
        self._known: dict[str, tuple[AttributeValue, Place]] = {}

    def read(self, role: Role | None) -> SpanReading:
        """Read the parts that a span of this role may hold."""
        is_call, is_model = role is Role.CALL, role is Role.GENERATION
        output_at, output = (
            _first(self.span, (*self.table.answer, *self.table.output)) if is_call else ("", None)
        )
        answer = self._answer(role)
        return SpanReading(
            self.span,
            self.table.name,
            role,
            question=self._question(role),
            query=self._text((*self.table.arguments, *self.table.query, *self.table.input), question_in)
            if role in (Role.RETRIEVAL, Role.RERANK, Role.TOOL)
            else None,
            documents=self._documents(role),
            tool=self._tool() if role is Role.TOOL else None,
            prompt=self._prompt() if is_model else None,
            handed=self._handed() if is_model else (),
            answer=answer,
            citations=self._citations(answer) if is_model and answer else (),
            told=_first(self.span, (*self.table.question, *self.table.input))[1] if is_call else None,
            output=output,
            output_at=output_at,
            reference=self._text(self.table.reference, answer_in),
            reference_chunk_ids=_strings(self.span, self.table.reference_ids),
            model=_name(self.span, self.table.model) if role is not Role.STEP else None,
            response_id=_name(self.span, self.table.response_id),
            session_id=_name(self.span, self.table.session),
            conversation_id=_name(self.span, self.table.conversation),
            prompt_version=_name(self.span, self.table.prompt_version),
        )

    def answered(self) -> SpanReading | None:
        """Read a retrieval whose output is an answer, beside what it found: both in one request."""
        raw = _first(self.span, self.table.output)[1]
        output = parse_loosely(raw) if not isinstance(raw, str) or "itations" in raw else None
        is_cited = isinstance(output, dict) and "citations" in map(plain, output)
        if not is_cited and not _name(self.span, self.table.model):
            return None
        answer = self._answer(Role.GENERATION)
        if answer is None or not answer.value:
            return None
        beside = tuple(each for each in self.table.documents if not each.startswith(self.table.output))
        handed = self._handed() or self._listed(beside)
        texts = [chunk.text for each in handed for chunk in each.documents.value or ()]
        if not handed or any(text and text in answer.value for text in texts):
            return None
        return self.read(Role.GENERATION)._replace(handed=handed)

    # -- parts

    def _place(self, attribute: str) -> Place:
        return Place(attribute, self.table.name, self.span.span_id)

    def _held(self, place: str) -> tuple[AttributeValue, Place]:
        """Return what is at a place: a value, or the messages of a flattened list or of events."""
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = self._held_once(place)
        return found

    def _held_once(self, place: str) -> tuple[AttributeValue, Place]:
        if place in (EVENTS, CHOICES):
            listed, event = event_messages(self.span, choices=place == CHOICES)
            return listed, self._place(event)
        path = _path(place)
        if path.prefix:
            at = self._place(f"{path.prefix}.*")
            return flat_messages(self.span, path.prefix, path.item), at
        return _find(self.span, place), self._place(place)

    def _text(self, places: Places, read: _TextIn) -> FoundValue[str] | None:
        return best(*[self._text_at(place, read) for place in places]) if places else None

    def _text_at(self, place: str, read: _TextIn) -> FoundValue[str] | None:
        value, at = self._held(place)
        if value in (None, "", ()):
            return None
        if self.table.verbatim:
            texts = value if isinstance(value, tuple) else (value,)
            text = ("\n" if self.table.of_any_role else "").join(
                each for each in texts if isinstance(each, str)
            )
            how = "as the mapping says" if self.table.of_any_role else "its text"
            return found_text(text or None, at, how, value)
        mime = place.endswith(".value") and self.span.attributes.get(place.replace(".value", ".mime_type"))
        if mime == _PLAIN_TEXT and isinstance(value, str):
            held = read(value, at) if isinstance(parse_loosely(value), dict | tuple) else None
            return held if held and held.value else found_text(value, at, "its text", value)
        is_json = mime == _JSON and isinstance(value, str) and value.lstrip()[:1] in ("{", "[")
        if is_json and parse_loosely(value) == value:
            return FoundValue(None, at, "its text", broken_damage(value, place))
        return read(value, at)

    def _question(self, role: Role | None) -> FoundValue[str] | None:
        if not self.table.of_any_role and role not in (Role.CALL, Role.GENERATION):
            return None
        told = self._text(self.table.question, question_in)
        asked = self._text(self.table.messages, question_in)
        if role is Role.GENERATION and asked is not None:
            return best(told, asked)
        if (found := best(told, self._text(self.table.input, question_in), asked)) is not None:
            return found
        return self._text(self.table.query, question_in) if role is Role.GENERATION else None

    def _prompt(self) -> FoundValue[tuple[Message, ...]] | None:
        for place in (*self.table.messages, *self.table.input):
            value, at = self._held(place)
            found = prompt_in(value, at) if value else None
            if found is None or not found.value:
                continue
            instructions = [
                {"role": "system", "content": parse_loosely(text)}
                for each in self.table.system
                if (text := _find(self.span, each))
            ]
            return found._replace(value=(*instructions, *found.value))
        return None

    def _answer(self, role: Role | None) -> FoundValue[str] | None:
        if not self.table.of_any_role and role not in (Role.CALL, Role.GENERATION):
            return None
        told = self._text(self.table.answer, answer_in) or self._whole_answer()
        if told is not None:
            return told if told.value is not None else best(told, self._text(self.table.output, answer_in))
        for place in self.table.reply:
            value, at = self._held(place)
            if not value:
                continue
            if is_broken_json(value, parse_loosely(value)):
                return FoundValue(None, at, "a message", broken_damage(value, place))
            listed, _ = messages_of(value)
            if not listed and isinstance(value, str):
                return self._text_at(place, answer_in)
            text = next((text for each in listed if (text := message_text(each))), None)
            if last_user_text(listed) or tool_messages(listed):  # a whole conversation, or a turn with tools
                text = last_answer_text(listed)
            if not text and (given := final_result(listed)) is not None:
                return answer_in(given, at)
            if text or role is Role.GENERATION:  # a model that only calls tools gives no answer
                return found_text(text, at, "text of the first choice", text)
        return self._text(self.table.output, answer_in)

    def _whole_answer(self) -> FoundValue[str] | None:
        """Return a structured answer without one text that must be it."""
        found = (self._held(place) for place in self.table.answer)
        value, at = next(((value, at) for value, at in found if isinstance(value, str) and value), ("", None))
        return found_text(value, at, "the whole result", value) if at else None

    def _documents(self, role: Role | None) -> FoundValue[tuple[Chunk, ...]] | None:
        if self.table.of_any_role:
            return best(*self._found(self.table.documents, documents_in))
        if role is Role.STEP and self.table.handed_on:
            listed = next((each for key in self.table.handed_on if (each := handed_on(self.span, key))), None)
            return find_documents(listed, self._place(self.table.handed_on[0]))
        if role is Role.TOOL:
            return best(*self._found((*self.table.result, *self.table.output), tool_documents))
        if role not in (Role.RETRIEVAL, Role.RERANK):
            return None
        if texts := self.table.synthesized(self.span):
            return find_documents(texts, self._place(self.table.input[-1]))
        found = [
            *(self._ranked(*each) for each in self.table.ranking),
            *self._found(self.table.documents or self.table.output, documents_in),
            *self._found(self.table.result, tool_documents),
        ]
        told = _completed(best(*found), found)
        if not any(chunk.text for chunk in (told and told.value) or ()):
            return best(*self._found(self.table.output, returned_documents)) or told
        return told

    def _found(
        self, places: Places, read: Callable[..., FoundValue[tuple[Chunk, ...]] | None]
    ) -> Iterator[FoundValue[tuple[Chunk, ...]] | None]:
        for place in places:
            path = _path(place)
            if path.prefix:
                flat = unflattened(self.span.attributes, path.prefix, path.item)
                yield flat_documents(self.span, flat, self._place(f"{path.prefix}.*"))
            elif (value := path.find_on(self.span)) not in (None, ""):
                handed = read(value, self._place(place))
                yield _with_loss(self.span, handed) if place.endswith("/*") else handed

    def _ranked(self, documents: str, ranking: str) -> FoundValue[tuple[Chunk, ...]] | None:
        """Sort documents by a list of indices and scores."""
        listed, order = (
            [parse_loosely(each) for each in value]
            if isinstance(value := self.span.attributes.get(key), tuple)
            else []
            for key in (documents, ranking)
        )
        ranked = tuple(
            {**(each if isinstance(each := listed[index], dict) else {"text": each}), "score": score}
            for rank in order
            if isinstance(rank, dict)
            and isinstance(index := rank.get("index"), int)
            and 0 <= index < len(listed)
            for score in (rank.get("relevanceScore"),)
        )
        return find_documents(ranked, self._place(documents)) if ranked else None

    def _tool(self) -> str | None:
        return _name(self.span, self.table.tool) or (
            None if self.table.name == "otel-genai" else self.span.name
        )

    def _handed(self) -> tuple[ToolResult, ...]:
        """Return what tools and the provider's own search gave the model.

        Documents of the request are whole, so what the response cites of them is left aside.
        """
        given = self._results((*self.table.messages, *self.table.input), is_response=False)
        if any(each.tool is None for each in given):
            return given
        places = (*self.table.envelopes, *self.table.reply, *self.table.answer, *self.table.output)
        return (*given, *self._results(places)) or self._listed(self.table.hosted)

    def _citations(self, answer: FoundValue[str]) -> tuple[FoundCitation, ...]:
        """Return the citations in the first of the response's places that has any."""
        for place in (*self.table.reply, *self.table.answer, *self.table.output, *self.table.envelopes):
            raw, _ = self._held(place)
            if may_cite(raw):
                found = citations_in(parse_loosely(raw), answer=answer.value or "", request=self._request)
                if found:
                    return found
        return ()

    def _request(self) -> tuple[AttributeValue, ...]:
        places = (*self.table.messages, *self.table.input)
        return tuple(parse_loosely(self._held(place)[0]) for place in places)

    def _listed(self, places: Places) -> tuple[ToolResult, ...]:
        listing = best(*self._found(places, documents_in))
        return (ToolResult(None, listing),) if listing and listing.value else ()

    def _results(self, places: Places, *, is_response: bool = True) -> tuple[ToolResult, ...]:
        """Return what the first of these places holds of tools and of the provider's search."""
        for place in places:
            raw, at = self._held(place)
            value = in_camel_case(parse_loosely(raw)) if may_hold_results(raw) else None
            if not value:
                continue
            of_tools = handed_documents(messages_of(value)[0], at)
            found = hosted_documents(value, is_response=is_response)
            shown = (ToolResult(None, find_documents(found, at)),) if found else ()
            if of_tools or shown:
                return (*of_tools, *shown)
        return ()


_PARTS: Final = tuple(each.name for each in fields(Convention) if each.type == "Places")
_TextIn: TypeAlias = Callable[..., FoundValue[str] | None]

_PATHS: Final[dict[str, AttributePath]] = {}
EVENTS: Final = "@events"
"""As a place: the messages that events hold, one each, the oldest form of OpenTelemetry's conventions."""
CHOICES: Final = "@choices"


def _path(place: str) -> AttributePath:
    found = _PATHS.get(place)
    if found is None:
        found = _PATHS[place] = AttributePath(place)
    return found


def _find(span: Span, place: str) -> AttributeValue:
    value = span.attributes.get(place)
    return _path(place).find_on(span) if value is None else value


def _with_loss(
    span: Span, found: FoundValue[tuple[Chunk, ...]] | None
) -> FoundValue[tuple[Chunk, ...]] | None:
    """Tell what a list of events has lost on its way."""
    if found is None or found.damage:
        return found
    if any(chunk.text and is_cut_by_tempo(chunk.text) for chunk in found.value or ()):
        return found._replace(damage=cut_damage(found.at.attribute))
    if len(span.events) < _SDK_EVENTS:
        return found
    detail = f"the span has {_SDK_EVENTS} events, the limit of SDKs: raise OTEL_SPAN_EVENT_COUNT_LIMIT"
    return found._replace(damage=ContentDamage(SkipReason.INCOMPLETE, detail))


def _completed(
    chosen: FoundValue[tuple[Chunk, ...]] | None, others: Sequence[FoundValue[tuple[Chunk, ...]] | None]
) -> FoundValue[tuple[Chunk, ...]] | None:
    """Give chunks without an id that of the same text in another place."""
    if chosen is None or not chosen.value or not any(is_unnamed(each) for each in chosen.value):
        return chosen
    known = {
        chunk.text: chunk
        for found in others
        if found is not None and found is not chosen
        for chunk in found.value or ()
        if not is_unnamed(chunk)
    }
    return chosen._replace(value=tuple(named_as(chunk, known.get(chunk.text)) for chunk in chosen.value))


def _name(span: Span, places: Places) -> str | None:
    """Return a short text, such as a model's name; some producers write it as JSON."""
    for place in places:
        value = _find(span, place)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value:
            parsed = parse_loosely(value) if value[:1] == '"' else value
            if isinstance(parsed, str) and parsed:
                return text_of({"": parsed}, "")
    return None


def _first(span: Span, places: Places) -> tuple[str, AttributeValue]:
    found = ((place, _find(span, place)) for place in places)
    return next(((place, value) for place, value in found if value is not None), ("", None))


def _strings(span: Span, places: Places) -> tuple[str, ...]:
    for place in places:
        value = _find(span, place)
        items = value if isinstance(value, tuple) else (value,)
        if found := tuple(each for each in items if isinstance(each, str)):
            return found
    return ()


def _step(segment: re.Match[str]) -> _Step:
    if segment["name"] is not None:
        return segment["name"]
    return int(segment["index"]) if segment["index"] is not None else None


def _walk(value: AttributeValue, steps: Sequence[_Step]) -> AttributeValue:
    if not steps:
        return value
    node = parse_loosely(value)
    step, rest = steps[0], steps[1:]
    if step is None and isinstance(node, tuple):
        found = tuple(_walk(each, rest) for each in node)
        return tuple(each for each in found if each is not None) or None
    if isinstance(step, int) and isinstance(node, tuple) and -len(node) <= step < len(node):
        return _walk(node[step], rest)
    return _walk(node.get(step), rest) if isinstance(step, str) and isinstance(node, dict) else None
