"""Which span holds the answer, and why a part of a call could not be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.languages import language_of
from ragtrace.model import AttributeValue, Gap, Part, Provenance, SkipReason
from ragtrace.traces.extract._calls import Call, SpanTree, is_mapped
from ragtrace.traces.extract._content import (
    FoundValue,
    Place,
    may_be_parsed,
    open_damage,
    parse_loosely,
    snake,
)
from ragtrace.traces.extract._messages import last_answer_text, messages_of, turns_of
from ragtrace.traces.extract._payload import ANSWER_NAME, ASIDE_NAME, RESULT_NAME, answer_of
from ragtrace.traces.extract._prompts import (
    QUESTION_MARKS,
    REPLY_ABROAD,
    SOURCES_ABROAD,
    asked_in,
    elements_in,
    fields_in,
    outermost,
    without,
)
from ragtrace.traces.extract._span_reader import (
    WENT_AWAY,
    Role,
    SpanReading,
    T,
    error_of,
    is_finished,
    is_streamed,
    is_unanswered,
    left_open,
)
from ragtrace.traces.extract._streams import JoinedStream
from ragtrace.traces.trace import Span, StatusCode, flat

_MOST_GENERATIONS: Final = 24
"""Of one call, from the last: so many are compared with each other."""
_MOST_COMPARED: Final = 4_000_000
"""Characters of prompts in which earlier answers are looked for."""
_DEEPEST: Final = 8
_SHORTEST_MATERIAL: Final = 12
_FINAL: Final = re.compile(r"final[_ ]?(answer|response)", re.IGNORECASE)
_THOUGHTS: Final = ("think", "thinking", "thought", "reasoning", "scratchpad", "analysis")
_HALF_THOUGHT: Final = re.compile(rf"[<\[\u25c1]/(?:{'|'.join(_THOUGHTS)})[>\]\u25b7]", re.IGNORECASE)
_HTML: Final = re.compile(
    r"h[1-6]|p|div|span|b|i|u|em|strong|br|code|pre|a|[uo]l|li|d[ltd]|t(?:able|head|body|[hrd])|blockquote|section"
    r"|article|details|summary|img|su[bp]|small|mark|html|head|body|svg|math|(?:no)?script|style|iframe|object|form"
    r"|button|video|audio|canvas|template",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"<\|[^|<>\n]{1,40}\|>(?:assistant\n)?|<(?:start|end)_of_turn>(?:model\n)?")
"""A special token of a chat template, such as ``<|channel|>``."""
_BARE_CHANNELS: Final = re.compile(r"analysis.*assistantfinal", re.DOTALL)
_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```\s*\Z", re.DOTALL)
_LABELED: Final = re.compile(
    r"^[ \t]{0,3}[#>*_\- ]{0,8}(?P<name>[^\W\d_][^\n:\uff1a*_#.!?]{0,40}?)[ \t]?"
    r"(?:\*\*|__)?(?:[:\uff1a](?:\*\*|__)?|(?<=\*\*)$|(?<=__)$)|^#{1,6} (?P<head>[^\W\d_][^\n]{0,40})$",
    re.MULTILINE,
)
_MAY_BE_LABELED: Final = re.compile(r"[:\uff1a#*_]")
_LABEL_OF_ANSWER: Final = re.compile(
    rf"(?:final |my |the )?(?:answer|reply|response)|(?:\w{{1,20}} )?{REPLY_ABROAD}(?: \w{{1,20}})?",
    re.IGNORECASE,
)
_LABEL_OF_ASIDE: Final = re.compile(
    rf"(?:sources?|citations?|references?|quotes?|evidence|confidence|observation|{SOURCES_ABROAD})\b.*",
    re.IGNORECASE,
)


# -- what is wrapped in an answer


def unwrapped(found: FoundValue[str], question: str | None = None) -> FoundValue[str]:
    """Take the answer out of its JSON, tags, labels or field markers, one in the other; say so in ``how``."""
    stream = parse_loosely(found.value)
    if isinstance(stream, JoinedStream):
        how = f"{found.how}; the pieces of the stream in it"
        damage = found.damage or open_damage(stream, found.at.attribute)
        found = found._replace(value=stream["content"], how=how, damage=damage)
    text, wrappings = unwrap(found.value or "", question)
    return found._replace(value=text, how="; ".join([found.how, *wrappings])) if wrappings else found


def unwrap(text: str, question: str | None = None) -> tuple[str, Sequence[str]]:
    """Return the text of an answer, and what was taken off around it, the outermost first."""
    wrappings: list[str] = []
    while text and len(wrappings) < _DEEPEST:
        inner, wrapping = _inner(text.strip(), question)
        if not inner:
            break
        text = inner
        wrappings.append(wrapping)
    return text, wrappings


def _inner(text: str, question: str | None) -> tuple[str | None, str]:
    """Take off the outermost wrapping."""
    if fields := fields_in(text):
        name = _name_of_answer({key: value for key, value in fields.items() if value}, question)
        return (fields[name], f"the field `{name}`") if name else (None, "")
    if "<|" in text or "_of_turn>" in text:
        tokens = list(_TOKEN.finditer(text))
        if tokens and (tokens[0].start() == 0 or tokens[-1].end() == len(text)):
            said = [part for each in _TOKEN.split(text) if (part := each.strip())]
            return (said[-1], "what follows the last token of the chat template") if said else (None, "")
    for each in (_in_json, _in_elements, _below_label):
        inner, how = each(text, question)
        if inner and inner != text:
            return inner, how
    return None, ""


def _in_json(text: str, question: str | None) -> tuple[str | None, str]:
    fenced = _FENCED.search(text) if text.endswith("```") else None
    if not fenced and not may_be_parsed(text):
        return None, ""
    node = parse_loosely(fenced[1].strip() if fenced else text)
    if isinstance(node, str):
        return (None if fenced else node), "the text of the JSON string"
    if not isinstance(node, dict | tuple):
        return None, ""
    name = _name_of_answer(node, question) if isinstance(node, dict) else None
    if fenced and not (name and (not fenced.start() or ANSWER_NAME.search(snake(name)))):
        return None, ""  # an example of JSON, below what is said of it
    inner = node[name] if name and isinstance(node, dict) else None
    if isinstance(inner, tuple) and all(isinstance(each, str) for each in inner):
        inner = "\n".join(map(str, inner))
    held = last_answer_text(messages_of(node)[0]) if not fenced else None
    held = held or answer_of(inner)[0] or answer_of(node)[0]
    return held.strip() if held else None, f"`{name}` of the JSON in it" if name else "the text in the JSON"


def _in_elements(text: str, question: str | None) -> tuple[str | None, str]:
    """Find the answer between tags of any name, or beside thoughts in such tags."""
    channels = _BARE_CHANNELS.match(text)
    if not channels and not any(mark in text for mark in "<[\u25c1"):
        return None, ""
    bare = text[channels.end() :] if channels else text
    elements = outermost(elements_in(bare))
    thoughts = [
        each
        for each in elements
        if each.name in _THOUGHTS or 'type="reasoning"' in bare[each.start : each.inside.start]
    ]
    bare = without(bare, thoughts)
    if half := list(_HALF_THOUGHT.finditer(bare)):
        bare = bare[half[-1].end() :]
    if bare.strip() != text:
        return bare.strip(), "without the model's thoughts"
    elements = [each for each in elements if not _HTML.fullmatch(each.name)]
    inside = {each.name: bare[each.inside].strip() for each in elements}
    beside = without(bare, elements).strip()
    named = [name for name in inside if ANSWER_NAME.search(name)]
    named = named or [name for name in inside if not beside and RESULT_NAME.search(name)]
    if named and (not beside or bare.endswith(">")):
        return inside[named[-1]], f"what is between tags `<{named[-1]}>`"
    if not beside and (len(inside) > 1 or "</" in "".join(inside.values())):
        said = [name for name in inside if not ASIDE_NAME.search(name)]
        name = _name_of_answer(inside, question) or (said[-1] if said else "")
        return inside.get(name), f"what is between tags `<{name}>`"
    if beside and elements and not elements[0].start and not any("<" in each for each in inside.values()):
        return (beside if bare.endswith(beside) else None), "what follows the tags"
    return None, ""


def _below_label(text: str, question: str | None) -> tuple[str | None, str]:
    """Find what follows ``Final Answer:`` and the like, behind what has labels, too."""
    if not _MAY_BE_LABELED.search(text):
        return None, ""
    labels = [(match["name"] or match["head"], match) for match in _LABELED.finditer(text)]
    answers = [i for i, (name, _) in enumerate(labels) if _LABEL_OF_ANSWER.fullmatch(name.strip())]
    if not answers:
        return None, ""
    at = 0 if answers[0] == 0 and labels[0][1].start() == 0 else answers[-1]
    name, match = labels[at]
    if labels[0][1].start() > 0 and not name.lower().startswith("final "):
        return None, ""
    asides = (each.start() for name, each in labels[at + 1 :] if _LABEL_OF_ASIDE.fullmatch(name))
    return text[match.end() : next(asides, None)].strip(" \t\n*_"), f"what follows `{name}`"


def _name_of_answer(fields: Mapping[str, AttributeValue], question: str | None) -> str | None:
    """Return the key of the answer: by its name, else the only one that holds prose."""
    held = {key: value for key, value in fields.items() if value and isinstance(value, str | dict | tuple)}
    others = [key for key, value in held.items() if not (isinstance(value, str) and _FINAL.fullmatch(value))]
    if len(held) == 2 and len(others) == 1:  # {"action": "Final Answer", "action_input": "…"}
        return others[0]
    for pattern in (ANSWER_NAME, RESULT_NAME):
        if named := [key for key in held if pattern.search(snake(key))]:
            return named[0]
    prose = [
        key
        for key, value in held.items()
        if isinstance(value, str) and " " in value.strip() and value != question
        if not ASIDE_NAME.search(snake(key))
    ]
    return prose[0] if len(prose) == 1 else None


# -- what the call returned


def returned(call: Call, answering: Answering) -> FoundValue[str] | None:
    """Return the answer in what the call returned; none if a model's answer is under another key there."""
    own = call.own
    if own is None or own.answer is None or own.answer.damage:
        return own.answer if own else None
    said = flat(own.said)
    texts = [text for each in answering.may_answer if (text := flat(said_by(each)))]
    is_same = any(_same(said, text) for text in texts)
    if not is_same and said in {flat(said_by(each)) for each in answering.helped}:
        # what left the application is the answer, even if a last step translated or rewrote it
        return own.answer if len(said.split()) > 2 and not is_verdict(said) else None
    holds = isinstance(parse_loosely(own.answer.value), dict | tuple)  # the text may be in it
    if _is_sure(own.answer.how) or said in texts or (is_same and not holds):
        return own.answer
    if not set(_texts_in(own.output, 0)).isdisjoint(texts):
        return None
    # only a word, such as `done`, while a model said more
    is_status = len(said.split()) < 3 and any(len(each.split()) > 3 for each in texts)
    return own.answer if said and not is_status else None


def _texts_in(value: AttributeValue, depth: int) -> Iterator[str]:
    node = parse_loosely(value)
    if isinstance(node, str):
        yield flat(node)
    elif isinstance(node, dict | tuple) and depth < _DEEPEST:
        for each in node.values() if isinstance(node, dict) else node:
            yield from _texts_in(each, depth + 1)


def _is_sure(how: str) -> bool:
    named = re.search(r"`(\w+)`", how)
    if named is None:
        return "last message" in how or "text of the" in how or "first choice" in how
    return bool(ANSWER_NAME.search(snake(named[1])))


def _same(text: str, other: str) -> bool:
    if text == other:
        return True
    shorter, longer = sorted((text, other), key=len)
    return len(shorter) >= _SHORTEST_MATERIAL and len(longer) <= 4 * len(shorter) + 200 and shorter in longer


def said_by(reading: SpanReading) -> str:
    """Return what a generation said, without thoughts and envelopes."""
    return unwrap(reading.said)[0]


# -- which generation answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """The generation that gave the answer, and why not the others."""

    chosen: SpanReading | None
    may_answer: tuple[SpanReading, ...] = ()
    """The last first."""
    helped: tuple[SpanReading, ...] = ()
    """Graders, rewrites of the query, titles and the like."""
    rewrites: bool = False
    """Whether a generation wrote the query of the retrieval."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """By span id: why a generation was passed over."""


class _Candidate(NamedTuple):
    reading: SpanReading
    text: str
    prompt: str
    """What the model was given as material: all but its own earlier turns."""


def answering(call: Call, tree: SpanTree) -> Answering:
    """Choose the last generation that answers.

    Of a framework's span and the provider's span below it, it is the outer one. Not a generation below a
    retrieval, nor one that ended before anything was retrieved, nor one whose prompt holds an earlier
    answer as material (a grader, a title, follow-up questions), nor one whose text is a later query.
    """
    every = call.of(Role.GENERATION)
    with_text = [each for each in every if each.said]
    if not with_text and (call.own is None or call.own.answer is None):  # agents that hide their models
        with_text = [each for each in call.of(Role.CALL) if each is not call.own and each.said]
    ids = {each.span.span_id for each in with_text}
    inner = tree.nearest_above(ids, ids)
    outermost = [each for each in with_text if each.span.span_id not in inner]
    outermost.sort(key=lambda each: (each.span.end_ns, each.span.span_id))
    reasons: dict[str, str] = {}
    retrievals = call.of(Role.RETRIEVAL, Role.RERANK)
    below = tree.nearest_above(
        [each.span.span_id for each in outermost], {each.span.span_id for each in retrievals}
    )
    queries = [flat(each.searched) for each in retrievals if each.searched]
    remaining: list[SpanReading] = []
    for each in outermost:
        span_id = each.span.span_id
        if span_id in below:
            reasons[span_id] = "it served a retrieval"
        elif retrievals and each.span.end_ns <= retrievals[0].span.start_ns:
            reasons[span_id] = "it ended before anything was retrieved"
        elif len(outermost) > 1 and flat(each.said) in queries:
            reasons[span_id] = "its text is the query of a retrieval"
        else:
            remaining.append(each)
    rewrites = any(flat(said_by(each)) in queries[:1] for each in outermost if each.span.span_id in reasons)
    remaining = remaining or outermost
    helpers = _helpers(remaining[-_MOST_GENERATIONS:], retrievals) if len(remaining) > 1 else {}
    reasons.update(helpers)
    left = [each for each in remaining if each.span.span_id not in helpers] or remaining
    left_ids = {each.span.span_id for each in left}
    helped = tuple(each for each in outermost if each.span.span_id not in left_ids)
    chosen = left[-1] if left else max(every, key=lambda each: each.span.end_ns, default=None)
    return Answering(
        chosen=chosen, may_answer=tuple(reversed(left)), helped=helped, rewrites=rewrites, reasons=reasons
    )


def _helpers(generations: Sequence[SpanReading], retrievals: Sequence[SpanReading]) -> Mapping[str, str]:
    """Return the generations that only help, with the reason."""
    candidates = [
        _Candidate(reading=each, text=flat(said_by(each)), prompt=_material(each)) for each in generations
    ]
    budget = _MOST_COMPARED
    chunks = [flat(chunk.text) for each in retrievals[:8] for chunk in each.chunks[:20] if chunk.text]
    found: dict[str, str] = {}
    anew: set[str] = set()
    for i, each in enumerate(candidates):
        given = []
        for other in candidates[:i]:
            if other.text and _asks(each, other.text):
                found[other.reading.span.span_id] = "its text is the question of a later generation"
            elif len(other.text) >= _SHORTEST_MATERIAL:
                budget -= len(each.prompt)
                if budget < 0:
                    return found
                if _holds(each.prompt, other.text, chunks):
                    given.append(other)
        holds = [other for other in given if other.reading.span.span_id not in found]
        if holds and _refines(each, holds, given, chunks):
            anew.add(each.reading.span.span_id)
        elif holds:
            found[each.reading.span.span_id] = (
                "its prompt holds an earlier answer, so it does not answer itself"
            )
    answers = [each for each in candidates if each.reading.span.span_id not in found]
    if any(len(each.text.split()) > 3 for each in answers):
        for each in answers:
            if len(each.text.split()) < 3 or is_verdict(each.text):
                found[each.reading.span.span_id] = "its text is a verdict or a label, and others are answers"
    answers = [each for each in answers if each.reading.span.span_id not in found]
    if chunks and len(answers) > 1:
        shown = [each for each in answers if any(chunk in each.prompt for chunk in chunks)]
        if shown and len(shown) < len(answers):
            for each in answers:
                if each not in shown and each.prompt and each.reading.span.span_id not in anew:
                    found[each.reading.span.span_id] = "its prompt holds nothing that was retrieved"
    return found if len(found) < len(candidates) else {}


def _asks(later: _Candidate, text: str) -> bool:
    """Return whether a text is what a later generation was asked: then it is the rewrite of a question."""
    asked = flat(later.reading.asked)
    if asked == text or (text in asked and text.endswith(QUESTION_MARKS) and len(text) < 600):
        return True
    return text in asked and flat(asked_in(later.reading.asked) or "") == text


def _holds(prompt: str, answer: str, chunks: Sequence[str]) -> bool:
    """Return whether a prompt has the answer more often than the chunks that say the same have it."""
    times = prompt.count(answer)
    if not times:
        return False
    quoted = sum(prompt.count(chunk) for chunk in chunks if answer in chunk)
    return times > quoted


def _refines(
    each: _Candidate, holds: Sequence[_Candidate], given: Sequence[_Candidate], chunks: Sequence[str]
) -> bool:
    """Return whether it answers anew, and does not only speak of the answers that it was given.

    It was given a draft and what was said of it, or says an answer in other words, or was given chunks that
    the earlier answers had not, or many answers.
    """
    if len(each.text.split()) < 3 or is_verdict(each.text) or each.text.startswith("["):
        return False
    if any(
        earlier.text in later.prompt and len(each.text) >= len(earlier.text) / 2
        for earlier, later in combinations(given, 2)
    ):
        return True
    if any(_restates(each, other) for other in holds):
        return True
    seen = [chunk for chunk in chunks if chunk in each.prompt]
    if any(all(chunk not in other.prompt for other in holds) for chunk in seen):
        return True
    read = [frozenset(chunk for chunk in chunks if chunk in other.prompt) for other in holds]
    return len(holds) > 1 and len(set(read)) == len(read) and all(read)


def _restates(each: _Candidate, other: _Candidate) -> bool:
    """Return whether it says an answer anew for the user: translated, with citations, in another tone.

    It was not given the question, as titles, summaries and graders are, and says about as much.
    """
    question = flat(asked_in(other.reading.asked) or other.reading.asked)
    if (question and question in each.prompt) or each.text.endswith(QUESTION_MARKS):
        return False
    if not len(other.text) / 2 <= len(each.text) <= 2 * len(other.text) + 40:
        return False
    before, after = (frozenset(text.casefold().split()) for text in (other.text, each.text))
    languages = {language_of(other.text), language_of(each.text)} - {None}
    return len(before & after) * 10 >= 6 * len(before) or len(languages) == 2


_VERDICT: Final = re.compile(r"[\[{].*[\]}]\Z", re.DOTALL)


def is_verdict(text: str) -> bool:
    """Return whether a text is JSON without prose: a score, a list of labels."""
    if not _VERDICT.match(text):
        return False
    node = parse_loosely(text)
    return not isinstance(node, str) and _name_of_answer(node if isinstance(node, dict) else {}, None) is None


def is_for_a_program(reading: SpanReading) -> bool:
    """Return whether a model's text is a verdict, a word it was offered, or a question of its own."""
    text = reading.said.strip()
    if not text or (len(text.split()) > 1 and text[0] not in "[{"):
        return False
    if is_verdict(text):
        return True
    prompt, node = _material(reading), parse_loosely(text)
    if isinstance(node, dict):
        asked = (
            each for key, each in node.items() if isinstance(each, str) and _QUESTION_NAME.fullmatch(key)
        )
        return any(flat(each) not in prompt for each in asked)
    offered = {each.lower() for match in _OPTIONS.finditer(prompt) for each in match.groups() if each}
    return text.strip(".\"'").lower() in offered


_QUESTION_NAME: Final = re.compile(r"(?:user_?)?(?:question|query)", re.IGNORECASE)
_OPTIONS: Final = re.compile(
    r"[\"'`](\w{1,20})[\"'`],?\s(?:\w{1,5}\s)?[\"'`](\w{1,20})[\"'`]"
    r"|(?<![\w/.])(\w{1,20})\s?/\s?(\w{1,20})(?![\w/])"
)
"""``"yes" or "no"``, ``yes/no``."""


def _material(reading: SpanReading) -> str:
    """Return the prompt without the model's turns; but with those before a further message of the user."""
    found = reading.prompt
    turns = turns_of(found.value or ()) if found else ()
    last = max((i for i, each in enumerate(turns) if each.role == "user"), default=-1)
    return flat("\n".join(each.text for i, each in enumerate(turns) if each.role != "assistant" or i < last))


_REFS = (semconv.INPUT_MESSAGES_REF, semconv.OUTPUT_MESSAGES_REF)


def missing_text(part: Part, spans: Sequence[Span]) -> Gap:
    """Explain a part that is missing on all these spans."""
    names = ", ".join(dict.fromkeys(repr(span.name) for span in spans)) or "any span"
    reason, why = _why(part, spans)
    return Gap(part=part, reason=reason, detail=f"the {part} is not on {names}{why}")


def missing_answer(spans: Sequence[Span]) -> Gap:
    """Explain an answer that is missing on all these spans: the call may have failed first."""
    failed = next((span for span in spans if span.status_code is StatusCode.ERROR), None)
    if failed is None:
        return missing_text(Part.ANSWER, spans)
    detail = f"span {failed.name!r} ended in an error and no answer was recorded"
    return Gap(part=Part.ANSWER, reason=SkipReason.FAILED_CALL, detail=detail)


def unfinished_answer(
    call: Call, generation: SpanReading | None, tree: SpanTree, *, has_text: bool
) -> Gap | None:
    """Tell why the answer is only a part: its reader left, or an error ended it.

    ragtrace's own mark counts first, then that a reader left, then an error: on the spans around the answer,
    the outermost first, and on the last generation inside.
    """
    start = generation.span if generation else call.root
    if start is None:
        return None
    inside = _last_inside(start, call, tree)
    told = [*_around(start, call, tree), *inside] if tree.cut_short else ()
    cut_short = [span for span in told if span.span_id in tree.cut_short]
    marked = [span for span in cut_short if semconv.RAG_STREAM_END in span.attributes]
    left = [span for span in cut_short if tree.cut_short[span.span_id] == semconv.READER_LEFT]
    ended = next(iter((*marked, *left, *cut_short)), None)
    if ended is not None and tree.cut_short[ended.span_id] == semconv.STREAM_FAILED:
        if not (has_text or any(map(is_streamed, told)) or is_unanswered(start)):
            return None  # nothing came before the error
        detail = f"the answer broke off with an error: span {ended.name!r} ended in {error_of(ended)}"
    elif ended or _is_left_later(start, call, tree) or (not has_text and is_unanswered(start)):
        detail = WENT_AWAY
    else:
        silent = (start, *inside) if not is_finished(start) else (start,)
        detail = next((why for span in silent if (why := left_open(span))), "")
    return Gap(part=Part.ANSWER, reason=SkipReason.INCOMPLETE, detail=detail) if detail else None


def _around(start: Span, call: Call, tree: SpanTree) -> Sequence[Span]:
    """Return the span of the answer and those around it, the outermost first.

    What surrounds the whole call tells nothing of the answer if it went on to other work.
    """
    line = list(tree.line(start))
    ids = [span.span_id for span in line]
    if call.root is not None and call.root.span_id in ids and tree.last_start_ns > start.end_ns:
        del line[ids.index(call.root.span_id) + 1 :]
    return line[::-1]


def _last_inside(start: Span, call: Call, tree: SpanTree) -> Sequence[Span]:
    """Return the last generation inside the generation: the SDK's span inside the framework's."""
    every = {each.span.span_id: each.span for each in call.of(Role.GENERATION)}
    if len(every) < 2:
        return ()
    inside = [every[each] for each in tree.nearest_above(every, {start.span_id}) if each in every]
    return sorted(inside, key=lambda span: (span.end_ns, span.span_id))[-1:]


def _is_left_later(start: Span, call: Call, tree: SpanTree) -> bool:
    """Return whether a span of the call that ended after the answer was left by its reader."""
    left = {each for each, how in tree.cut_short.items() if how == semconv.READER_LEFT}
    ended = {each for each in left if (span := tree.find(each)) and span.end_ns >= start.end_ns}
    return not ended.isdisjoint(tree.nearest_above(ended, {call.root.span_id}) if call.root else ended)


def missing_documents(span: Span) -> Gap:
    """Explain a retrieval without documents."""
    if any(key.startswith("db.") for key in span.attributes) and not span.dropped_attributes_count:
        detail = (
            f"span {span.name!r} records a query without its results: record the chunks with "
            "`ragtrace.retrieval`, or turn on the content of the database's instrumentation if it has any"
        )
        return Gap(part=Part.CONTEXT, reason=SkipReason.NO_CONTENT, detail=detail)
    return missing_text(Part.CONTEXT, [span])


def _why(part: Part, spans: Sequence[Span]) -> tuple[SkipReason, str]:
    marks = [span.attributes.get(semconv.RAG_REDACTED) for span in spans]
    if any(isinstance(each, tuple) and part in each for each in marks):
        return SkipReason.REDACTED, ": the redaction hook removed it"
    if any(span.attributes.get(semconv.RAG_CAPTURE) is False for span in spans):
        how = 'turn it on with `ragtrace.instrument(content="on")`'
        return SkipReason.NO_CONTENT, f": content capture is off; {how}"
    dropped = sum(span.dropped_attributes_count for span in spans)
    reason = SkipReason.INCOMPLETE if dropped else SkipReason.NO_CONTENT
    if any(key in span.attributes for span in spans for key in _REFS):
        how = "let it write them to spans as well"
        return reason, f": the instrumentation uploaded the messages elsewhere; {how}"
    if dropped:
        return reason, f": {dropped} attributes were dropped; raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
    unread = unread_text(spans)
    return reason, f", and content is on: {unread.advice}" if unread else f": {_switches_of(spans)}"


_GENAI: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
_BY_SCOPE: Final = (
    (semconv.SCOPE_CAPTURE, '`ragtrace.instrument(content="on")`'),
    ("openinference.", "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and similar variables"),
    ("langfuse", "set LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED=true"),
    ("langsmith", "unset LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS"),
    ("pydantic-ai", "set `include_content=True` in pydantic-ai's instrumentation settings"),
    (
        "opentelemetry.instrumentation.openai_v2",
        f"set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and {_GENAI}",
    ),
    ("opentelemetry.instrumentation.genai", f"set {_GENAI}"),
    ("opentelemetry.util.genai", f"set {_GENAI}: EVENT_ONLY writes to log records, which are no spans"),
    ("opentelemetry.instrumentation.", "set TRACELOOP_TRACE_CONTENT=true"),
)
"""By prefix of the scope's name. All other OpenTelemetry scopes are OpenLLMetry's."""

_BY_SPAN: Final[tuple[tuple[Callable[[Span], bool], str], ...]] = (
    (lambda span: span.name.startswith("haystack."), "set HAYSTACK_CONTENT_TRACING_ENABLED=true"),
    (
        lambda span: semconv.VERCEL_OPERATION in span.attributes,
        "set `recordInputs: true, recordOutputs: true` in `experimental_telemetry`",
    ),
)
_OTHERS: Final = f"turn on content capture in the instrumentation, for OpenTelemetry's {_GENAI}"


def _switches_of(spans: Sequence[Span]) -> str:
    """Return how to make the instrumentations of these spans record texts."""
    switches: dict[str, None] = {}
    for span in spans:
        by_scope = (switch for start, switch in _BY_SCOPE if span.scope.name.startswith(start))
        by_span = (switch for writes, switch in _BY_SPAN if writes(span))
        switches[next(by_scope, None) or next(by_span, _OTHERS)] = None
    return "; ".join(switches) or _OTHERS


_RETRIEVALS: Final = (Role.RETRIEVAL, Role.RERANK)
_NO_TEXT: Final = "it holds no text"


def passed_over(
    call: Call,
    tree: SpanTree,
    *,
    generation: SpanReading | None,
    sources: Sequence[SpanReading],
    chosen: Sequence[Provenance],
    reasons: Mapping[str, str],
) -> tuple[Provenance, ...]:
    """Return the readings that hold a part of the record but were not chosen, with the rule."""
    spans = {part: {each.span_id for each in chosen if each.part is part} for part in Part}
    own = call.own.span.span_id if call.own else None
    considered = (
        *_questions(call, generation, is_own=own in spans[Part.QUESTION]),
        *_contexts(call, tree, generation, sources),
        *_answers(call, tree, generation, reasons, is_own=own in spans[Part.ANSWER]),
    )
    return tuple(each for each in considered if each.span_id not in spans[each.part])


def _questions(call: Call, generation: SpanReading | None, *, is_own: bool) -> Iterator[Provenance]:
    for each in call.of(*_RETRIEVALS, Role.GENERATION):
        found = each.question if each.role is Role.GENERATION else each.query
        if found is None:
            continue
        if found.value is None:
            why = _NO_TEXT
        elif is_own:
            why = "the question of the RAG call itself comes first"
        elif each.role is not Role.GENERATION:
            why = "the query of another retrieval was used"
        else:
            why = "a prompt comes last" if each is generation else "another generation gave the answer"
        yield _over(Part.QUESTION, each, found, why)


def _contexts(
    call: Call, tree: SpanTree, generation: SpanReading | None, sources: Sequence[SpanReading]
) -> Iterator[Provenance]:
    chosen = {each.span.span_id for each in sources}
    retrievals = [each for each in call.of(*_RETRIEVALS) if each.span.span_id not in chosen]
    inside = tree.nearest_above([each.span.span_id for each in retrievals], chosen)
    around = tree.all_above(chosen)
    has_mapped = any(is_mapped(source.documents) for source in sources)
    has_reranked = any(source.role is Role.RERANK for source in sources)
    for each in retrievals:
        if each.span.span_id in inside:
            why = "the retrieval around it holds the same documents"
        elif each.span.span_id in around:
            why = "it holds no chunks of its own, but a retrieval inside it does"
        elif has_mapped:
            why = "the mapping names another place"
        elif generation and each.span.start_ns > generation.span.end_ns:
            why = "it began after the answer was complete"
        else:
            why = "the output of a later step replaces it" if has_reranked else _NO_TEXT
        yield _over(Part.CONTEXT, each, each.documents, why)
    for each in call.of(Role.TOOL):
        why = "its name is not that of a retrieval tool: if it retrieves, name it in `tools` of the mapping"
        yield _over(Part.CONTEXT, each, each.documents, why)


def _answers(
    call: Call, tree: SpanTree, generation: SpanReading | None, reasons: Mapping[str, str], *, is_own: bool
) -> Iterator[Provenance]:
    generations = call.of(Role.GENERATION)
    chosen = {generation.span.span_id} if generation else set()
    inside = tree.nearest_above([each.span.span_id for each in generations], chosen)
    for each in generations:
        if each.answer is None or each.answer.value is None:
            why = _NO_TEXT
        elif each.span.span_id in reasons:
            why = reasons[each.span.span_id]
        elif is_own:
            why = "the answer of the RAG call itself comes first"
        elif each.span.span_id in inside:
            why = "the generation around it holds the same text"
        else:
            why = "a later generation gave the answer"
        yield _over(Part.ANSWER, each, each.answer, why)


def _over(part: Part, reading: SpanReading, found: FoundValue[T] | None, why: str) -> Provenance:
    at = found.at if found else Place("", reading.convention, "")
    return FoundValue(None, at).provenance(part, reading.span, why)


_OF_THE_MACHINE: Final = re.compile(
    r"(?:http|url|db\.(?!vector)|exception|code|net|network|server|client|user_agent|otel|telemetry|thread|process"
    r"|faas|k8s|aws|cloud|container|host|os|rpc|messaging|peer|error|service|ragtrace|enduser|tls)\b|.*\.(?:url|uri)$"
)
_NAMES: Final = (
    (
        "context",
        re.compile(r"context|document|docs?\b|chunk|passage|retriev|hits\b|knowledge|snippet", re.IGNORECASE),
    ),
    (
        "answer",
        re.compile(r"answer|response|reply|completion|generat|output|result|said|antwort", re.IGNORECASE),
    ),
    ("question", re.compile(r"question|query|input|prompt|ask|message|request|frage\b", re.IGNORECASE)),
)
_MOST: Final = 8
_MOST_SPANS: Final = 500
_SHORTEST: Final = 8
_LONGEST_PATH: Final = 200
_DEEPEST_UNREAD: Final = 3
_SEGMENT: Final = re.compile(r"[^.\[\]\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A trace that holds text for people or models, in attributes that nothing reads."""

    producer: str
    """The scope that wrote most of them, else the service."""
    attributes: tuple[str, ...]
    """Paths of the attributes that hold text, the most frequent first."""
    mapping: Mapping[str, str]
    """What to write below ``extract.mapping``: a path for each part that has a likely one."""

    @property
    def advice(self) -> str:
        """One sentence with the attributes and a mapping that can be pasted."""
        listed = ", ".join(f"`{each}`" for each in self.attributes)
        parts = ", ".join(f"{part}: [{path}]" for part, path in self.mapping.items())
        proposed = f"; if they are the parts of a RAG call, map them: `extract: {{mapping: {{{parts}}}}}`"
        return f"these attributes hold text: {listed}{proposed if parts else ''}"


def unread_text(spans: Iterable[Span]) -> Unread | None:
    """Return what text the spans hold; ``None`` if there is none but the machine's own."""
    paths: Counter[str] = Counter()
    producers: Counter[str] = Counter()
    for span, _ in zip(spans, range(_MOST_SPANS), strict=False):
        found = [path for path in _text_paths(span) if len(path) <= _LONGEST_PATH]
        paths.update(found)
        if found:
            service = span.resource.attributes.get("service.name")
            producers[span.scope.name or (service if isinstance(service, str) else "")] += len(found)
    if not paths:
        return None
    listed = tuple(path for path, _ in paths.most_common())
    mapping: dict[str, str] = {}
    for part, name in (_NAMES[2], _NAMES[0], _NAMES[1]):
        best = [path for path in listed if _part_of(path) == part and name.search(path)]
        if best:
            mapping[part] = best[0]
    return Unread(producer=producers.most_common(1)[0][0], attributes=listed[:_MOST], mapping=mapping)


def _part_of(path: str) -> str | None:
    """Return the part that the last telling word of a path names."""
    for segment in reversed(_SEGMENT.findall(path)):
        for part, name in _NAMES:
            if name.search(segment):
                return part
    return None


def _text_paths(span: Span) -> Iterator[str]:
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for key, value in attributes.items():
            if not _OF_THE_MACHINE.match(key) and _SEGMENT.fullmatch(key.replace(".", "")):
                yield from _paths(key, value, 0)


def _paths(path: str, value: AttributeValue, depth: int) -> Iterator[str]:
    node = parse_loosely(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    if isinstance(node, str):
        if len(node.strip()) >= _SHORTEST and (" " in node.strip() or not node.isascii()):
            yield path
    elif isinstance(node, tuple):
        if depth <= _DEEPEST_UNREAD and any(True for each in node[:3] for _ in _paths(path, each, depth + 1)):
            yield path
    elif isinstance(node, dict):
        if depth >= _DEEPEST_UNREAD:
            if any(isinstance(each, str) and " " in each for each in node.values()):
                yield path
            return
        for key, each in list(node.items())[:20]:
            if _SEGMENT.fullmatch(key):
                yield from _paths(f"{path}.{key}", each, depth + 1)
