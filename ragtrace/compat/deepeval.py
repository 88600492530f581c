"""deepeval's metrics of versions 3 and 4, with its own calls, parsing of replies and arithmetic.

Differences between the versions:

=====================  ==================================  =====================================
of a reply             deepeval 3 (3.9.9)                  deepeval 4 (4.3.1)
=====================  ==================================  =====================================
neither yes nor no     ``idk``                             ``borderline``, and ``idk``
an unknown word        an error; in the metrics of the     the entry is dropped
                       context it counts as a no
no list of verdicts    an error                            an empty list
hallucination          share contradicted: 0 is good       share not contradicted: 1 is good
=====================  ==================================  =====================================

Neither checks that every item has a verdict, and neither retries. Source: both versions, compared with this
module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias, TypeVar

from pydantic import JsonValue

from ragtrace.compat.tool import (
    AS_DATA,
    ToolCalls,
    ToolMetric,
    ToolOptions,
    ToolRun,
    contexts_of,
    fenced,
    missing_parts,
)
from ragtrace.model import (
    ChunkVerdict,
    Claim,
    Direction,
    Intermediate,
    Part,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import SamplingParameters
from ragtrace.scoring import Judged, score

_EACH_WITH_REASON = '{"verdicts": [{"verdict": "yes", "reason": "why"}, {"verdict": "no", "reason": "why"}]}'


def _truths_prompt(context: str, limit: int | None) -> str:
    return _prompt(
        f"""List {_how_many(limit)} stated in the context below. Write each as one coherent sentence
        that is understood without the others. Take nothing from outside the context, even where the
        context is wrong.""",
        '{"truths": ["first fact", "second fact"]}',
        fenced("context", context),
    )


def _claims_prompt(answer: str) -> str:
    return _prompt(
        """List every factual claim that the answer below makes. Take each as it is made, true or not,
        and word it so that it is understood without the others. Leave out opinions and pleasantries.""",
        '{"claims": ["first claim", "second claim"]}',
        fenced("answer", answer),
    )


def _claim_verdicts_prompt(claimed: JsonValue, known: str, *, unsure: str) -> str:
    return _prompt(
        f"""Judge each claim below against the facts below, in the order of the claims, one verdict for
        each. Say "yes" if the facts bear the claim out, "no" only if they directly contradict it, and
        "{unsure}" if they neither bear it out nor contradict it. Use no knowledge of your own. Give a
        `reason` wherever the verdict is not "yes": what the facts say instead, or that they are silent.""",
        f'{{"verdicts": [{{"verdict": "yes"}}, {{"verdict": "{unsure}", "reason": "why"}}]}}',
        fenced("facts", known),
        fenced("list of claims", _listed(claimed)),
    )


def _statements_prompt(answer: str) -> str:
    return _prompt(
        """Break the answer below into the statements it is made of. Short remarks and single words
        count as statements too; leave none out.""",
        '{"statements": ["first statement", "second statement"]}',
        fenced("answer", answer),
    )


def _answer_verdicts_prompt(question: str, stated: JsonValue, *, unsure: str) -> str:
    return _prompt(
        f"""Judge for each statement below, in their order, one verdict for each, whether it helps to
        answer the question. Say "yes" if it does, "no" if it has nothing to do with it, and "{unsure}"
        if it is no answer by itself but may support one. Give a `reason` wherever the verdict is not
        "yes".""",
        f'{{"verdicts": [{{"verdict": "yes"}}, {{"verdict": "{unsure}", "reason": "why"}}]}}',
        fenced("question", question),
        fenced("list of statements", _listed(stated)),
    )


def _chunk_verdicts_prompt(question: str, reference: str, contexts: Sequence[str]) -> str:
    return _prompt(
        f"""{_counted(contexts)} Judge each document, in the given order, one verdict for each: would it
        help to arrive at the expected answer to the question? Say "yes" if it holds anything of use for
        that, else "no". Always give a `reason` that quotes the words that decide.""",
        _EACH_WITH_REASON,
        fenced("question", question),
        fenced("expected answer", reference),
        fenced("documents", _listed(contexts)),
    )


def _recall_verdicts_prompt(reference: str, contexts: Sequence[str]) -> str:
    return _prompt(
        """Go through the expected answer below sentence by sentence: one verdict for each sentence, and
        no others. Say "yes" if the sentence can be traced to a node of the retrieved context, else
        "no". Always give a `reason` that names the node and quotes it briefly, or says what is missing.""",
        _EACH_WITH_REASON,
        fenced("expected answer", reference),
        fenced("retrieved context", _listed(contexts)),
    )


def _context_statements_prompt(question: str, context: str) -> str:
    return _prompt(
        """Take the high-level statements out of the context below and judge for each whether it is
        relevant to the question: "yes" or "no". Repeat the statement in `statement`. Only where the
        verdict is "no", give a `reason` that quotes the words that decide. A context without any
        statement gets an empty list.""",
        '{"verdicts": [{"verdict": "yes", "statement": "what is stated"},'
        ' {"verdict": "no", "statement": "what is stated", "reason": "why"}]}',
        fenced("question", question),
        fenced("context", context),
    )


def _context_verdicts_prompt(answer: str, contexts: Sequence[str]) -> str:
    return _prompt(
        f"""{_counted(contexts)} Judge for each document, in the given order, one verdict for each,
        whether the answer agrees with it. Say "no" only if the answer contradicts the document; a
        detail that the document does not mention is no contradiction: "yes". Take each document at its
        word. Always give a `reason`.""",
        _EACH_WITH_REASON,
        fenced("documents", _listed(contexts)),
        fenced("answer", answer),
    )


def _reason_prompt(measured: str, score: float, findings: Sequence[str]) -> str:
    return _prompt(
        f"""The {measured} of an answer of a retrieval system was measured as {score:.2f}. Say in one or
        two sentences why the score is what it is, from the findings below and nothing else. Name the
        score.""",
        '{"reason": "The score is … because …"}',
        fenced("findings", _listed(findings) if findings else "(nothing speaks against a better score)"),
    )


def _prompt(task: str, form: str, *material: str) -> str:
    asked = f"Reply with one JSON object of this form and nothing else:\n{form}"
    return "\n\n".join([" ".join(task.split()), asked, AS_DATA, *material])


def _how_many(limit: int | None) -> str:
    if limit is None:
        return "all undisputed facts"
    if limit == 1:
        return "the single most important undisputed fact"
    return f"the {limit} most important undisputed facts per document"


def _counted(contexts: Sequence[str]) -> str:
    return f"There {'is 1 document' if len(contexts) == 1 else f'are {len(contexts)} documents'} below."


def _listed(entries: JsonValue | Sequence[str]) -> str:
    texts = entries if isinstance(entries, (list, tuple)) else [entries]
    lines = (text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for text in texts)
    return "\n\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


JsonObject: TypeAlias = dict[str, JsonValue]

_TRAILING_COMMA = re.compile(r",\s*([\]}])")
_LEADING_WORD = re.compile(r"[a-z]+")


class DeepEvalUnreadable(Exception):
    """deepeval raises on this reply. The message says what is wrong with it, without its text."""


class Word(StrEnum):
    """What deepeval's judges may say."""

    YES = "yes"
    NO = "no"
    BORDERLINE = "borderline"
    """``idk`` in deepeval 3."""


BINARY = frozenset({Word.YES, Word.NO})
TERNARY = frozenset(Word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a list of verdicts."""

    word: Word | None
    """``None`` where the word is outside the vocabulary and deepeval drops the entry."""
    reason: str | None = None
    statement: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictForm:
    """What a metric demands of an entry."""

    words: frozenset[Word]
    reason_required: bool = False
    statement_required: bool = False
    free_word: Callable[[str], str] | None = None
    """deepeval 3: any word passes, and after this only ``yes`` counts; ``None`` where the word is checked."""
    list_required: bool = False
    """deepeval 3: the list is checked by its schema, so that no other empty value passes for one."""


def read_object(text: str, *, commas_first: bool) -> JsonObject:
    """Read the text between the first ``{`` and the last ``}``.

    Trailing commas are taken out: at once in deepeval 3 (``commas_first``), after a first failure in 4.

    Raises:
        Unreadable: that is no JSON object.
    """
    start, end = text.find("{"), text.rfind("}") + 1
    piece = "" if start < 0 else text[start:end] if end else text[start:] + "}"
    repaired = _TRAILING_COMMA.sub(r"\1", piece)
    for candidate in (repaired,) if commas_first else (piece, repaired):
        try:
            value: JsonObject = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return value
    raise DeepEvalUnreadable("it holds no JSON object")


def field_of(found: JsonObject, name: str) -> JsonValue:
    """Return a field that must be there.

    Raises:
        Unreadable: it is not.
    """
    if name not in found:
        raise DeepEvalUnreadable(f"it has no field `{name}`")
    return found[name]


def read_verdicts_4(form: VerdictForm, found: JsonObject) -> tuple[Item, ...]:
    """Read a list of verdicts as deepeval 4 does: by the leading word of each, whatever its case.

    An absent list is an empty one. Entries with a word outside the vocabulary are dropped before anything
    else of them is looked at.

    Raises:
        Unreadable: an entry is no object, or lacks what the metric demands.
    """
    return tuple(_item_4(entry, form) for entry in _entries(found.get("verdicts") or []))


def read_verdicts_3(form: VerdictForm, found: JsonObject) -> tuple[Item, ...]:
    """Read a list of verdicts as deepeval 3 does: a word is checked as it is, or is a no unless ``yes``.

    Raises:
        Unreadable: the list is absent, an entry is no object, lacks what the metric demands, or has a word
            outside the vocabulary.
    """
    listed = field_of(found, "verdicts")
    if form.list_required and not isinstance(listed, list):
        raise DeepEvalUnreadable("its field `verdicts` is no list")
    return tuple(_item_3(entry, form) for entry in _entries(listed))


def _entries(listed: JsonValue) -> Sequence[JsonValue]:
    if isinstance(listed, list):
        return listed
    if isinstance(listed, (dict, str)) and not listed:
        return []
    raise DeepEvalUnreadable("its field `verdicts` is no list")


def _item_4(entry: JsonValue, form: VerdictForm) -> Item:
    fields = _object(entry)
    word = _leading_word(fields.get("verdict"))
    if word not in form.words:
        return Item(word=None)
    return _checked(fields, form, word)


def _item_3(entry: JsonValue, form: VerdictForm) -> Item:
    fields = _object(entry)
    said = _text_field(fields, "verdict", required=True) or ""
    if form.free_word is not None:
        return _checked(fields, form, Word.YES if form.free_word(said) == Word.YES else Word.NO)
    word = _WORDS_3.get(said)
    if word not in form.words:
        raise DeepEvalUnreadable("a verdict is not in the vocabulary")
    return _checked(fields, form, word)


def _checked(fields: JsonObject, form: VerdictForm, word: Word | None) -> Item:
    return Item(
        word=word,
        reason=_text_field(fields, "reason", required=form.reason_required),
        statement=_text_field(fields, "statement", required=True) if form.statement_required else None,
    )


_WORDS_3 = {"yes": Word.YES, "no": Word.NO, "idk": Word.BORDERLINE}
_WORDS_4 = {word.value: word for word in Word} | {"idk": Word.BORDERLINE}


def _leading_word(raw: JsonValue) -> Word | None:
    match = _LEADING_WORD.match(raw.strip().lower()) if isinstance(raw, str) else None
    return _WORDS_4.get(match[0]) if match else None


def _object(entry: JsonValue) -> JsonObject:
    if not isinstance(entry, dict):
        raise DeepEvalUnreadable("an entry of `verdicts` is no object")
    return entry


def _text_field(fields: JsonObject, name: str, *, required: bool) -> str | None:
    value = fields.get(name)
    if isinstance(value, str) or (value is None and not required):
        return value
    raise DeepEvalUnreadable(f"an entry of `verdicts` has no text as `{name}`")


ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """How a version of deepeval parses replies."""

    profile: str
    unsure: str
    """The word in its prompts for neither yes nor no."""
    commas_first: bool
    read_verdicts: Callable[[VerdictForm, JsonObject], tuple[Item, ...]]


_Reading: TypeAlias = tuple[ToolRun, Sequence[str]]
"""A metric's result, and the findings that a reason is asked for with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A run of a metric: its calls, options and parsing."""

    calls: ToolCalls
    options: ToolOptions
    version: _Version

    async def text(self, step: str, prompt: str) -> str:
        return (await self.calls.text(step, prompt, sampling=SamplingParameters(temperature=0.0))).text

    async def items(self, prompt: str, form: VerdictForm) -> tuple[Item, ...]:
        reply = await self.text("verdicts", prompt)
        return self.read("verdicts", reply, partial(self.version.read_verdicts, form))

    async def reason(self, metric: str, reading: _Reading) -> str | None:
        """Ask for a reason, as deepeval does by default: if the reply is unreadable, there is no score."""
        run, findings = reading
        prompt = _reason_prompt(metric.replace("_", " "), run.score or 0.0, findings)
        reply = await self.text("reason", prompt)
        said = self.read("reason", reply, partial(field_of, name="reason"))
        return said if isinstance(said, str) or said is None else json.dumps(said, ensure_ascii=False)

    def read(self, step: str, reply: str, reader: Callable[[JsonObject], ReadT]) -> ReadT:
        try:
            return reader(read_object(reply, commas_first=self.version.commas_first))
        except DeepEvalUnreadable as exc:
            raise DeepEvalUnreadable(f"the reply to `{step}`: {exc}") from exc

    def size(self, step: str, listed: JsonValue) -> int:
        """Count the entries: deepeval checks only the length, so it accepts a text or an object as a list."""
        if isinstance(listed, (list, dict, str)):
            return len(listed)
        raise DeepEvalUnreadable(f"the reply to `{step}`: its field `{step}` is no list")

    def scored(self, metric: str, words: Sequence[Judged], explanation: str, **more: Any) -> ToolRun:
        """Return the result of the version's rule on these words; ``more`` are further fields."""
        found = score(
            metric,
            self.version.profile,
            words,
            strict_mode=self.options.strict_mode,
            penalize_ambiguous_claims=self.options.penalize_ambiguous_claims,
        )
        return ToolRun.of(found, explanation, **more)


async def _faithfulness(record: RagRecord, asking: _Asking) -> _Reading:
    limit = asking.options.truths_extraction_limit
    context = "\n\n".join(contexts_of(record))
    # deepeval sends both at once, and parses neither before it has both
    truths_reply = await asking.text(
        "truths", _truths_prompt(context, None if limit is None else max(limit, 0))
    )
    claims_reply = await asking.text("claims", _claims_prompt(record.answer or ""))
    truths = asking.read("truths", truths_reply, partial(field_of, name="truths"))
    claims = asking.read("claims", claims_reply, partial(field_of, name="claims"))
    claimed, _ = asking.size("claims", claims), asking.size("truths", truths)
    made = Intermediate(truths=_texts(truths), truths_limit=limit) if _texts(truths) else None
    if not claimed:
        said = "the answer claims nothing, and nothing is all faithful"
        return asking.scored("faithfulness", [], said, intermediate=made), ()
    prompt = _claim_verdicts_prompt(claims, _joined(truths), unsure=asking.version.unsure)
    items = await asking.items(prompt, VerdictForm(words=TERNARY))
    passing = {Word.YES} if asking.options.penalize_ambiguous_claims else {Word.YES, Word.BORDERLINE}
    run = asking.scored(
        "faithfulness",
        _words(items),
        _summary(items, passing, "verdicts agree with the context"),
        verdicts=_verdicts(claims, items, _CLAIM_LABELS),
        intermediate=made,
    )
    return run, _reasons(items, set(Word) - passing)


async def _answer_relevance(record: RagRecord, asking: _Asking) -> _Reading:
    reply = await asking.text("statements", _statements_prompt(record.answer or ""))
    stated = asking.read("statements", reply, _list_of_statements)
    if not stated:
        said = "the answer states nothing, and nothing is all relevant"
        return asking.scored("answer_relevance", [], said), ()
    prompt = _answer_verdicts_prompt(record.question or "", stated, unsure=asking.version.unsure)
    items = await asking.items(prompt, VerdictForm(words=TERNARY))
    run = asking.scored(
        "answer_relevance",
        _words(items),
        _summary(items, {Word.YES, Word.BORDERLINE}, "statements are relevant to the question"),
        verdicts=_verdicts(stated, items, _RELEVANCE_LABELS),
    )
    return run, _reasons(items, {Word.NO})


async def _context_precision(record: RagRecord, asking: _Asking) -> _Reading:
    prompt = _chunk_verdicts_prompt(record.question or "", record.reference or "", contexts_of(record))
    form = VerdictForm(words=BINARY, reason_required=True, free_word=lambda said: said.strip().lower())
    items = await asking.items(prompt, form)
    run = asking.scored(
        "context_precision",
        _words(items),
        _summary(items, {Word.YES}, "verdicts find the chunk useful"),
        chunk_verdicts=tuple(
            ChunkVerdict(
                chunk_id=chunk.id, rank=chunk.rank, label=_label(item, _RELEVANCE_LABELS), reason=item.reason
            )
            for chunk, item in zip(record.chunks, items, strict=False)
        ),
    )
    return run, _reasons(items, BINARY)


async def _context_recall(record: RagRecord, asking: _Asking) -> _Reading:
    prompt = _recall_verdicts_prompt(record.reference or "", contexts_of(record))
    items = await asking.items(prompt, VerdictForm(words=BINARY, reason_required=True, free_word=str.lower))
    said = _summary(items, {Word.YES}, "sentences of the reference are in the context")
    return asking.scored("context_recall", _words(items), said), _reasons(items, BINARY)


async def _context_relevance(record: RagRecord, asking: _Asking) -> _Reading:
    form = VerdictForm(words=BINARY, statement_required=True, free_word=str.lower, list_required=True)
    # deepeval asks about all chunks at once, and parses no reply before it has all
    replies = [
        await asking.text("ctx_verdicts", _context_statements_prompt(record.question or "", context))
        for context in contexts_of(record)
    ]
    reader = partial(asking.version.read_verdicts, form)
    by_chunk = [asking.read("ctx_verdicts", reply, reader) for reply in replies]
    items = tuple(item for of_chunk in by_chunk for item in of_chunk)
    run = asking.scored(
        "context_relevance",
        [_words(of_chunk) for of_chunk in by_chunk],
        _summary(items, {Word.YES}, "statements of the context are relevant to the question"),
        chunk_verdicts=tuple(
            ChunkVerdict(chunk_id=chunk.id, rank=chunk.rank, label=_label_of_all(of_chunk))
            for chunk, of_chunk in zip(record.chunks, by_chunk, strict=True)
        ),
    )
    return run, _reasons(items, {Word.NO})


async def _hallucination(record: RagRecord, asking: _Asking) -> _Reading:
    prompt = _context_verdicts_prompt(record.answer or "", contexts_of(record))
    items = await asking.items(prompt, VerdictForm(words=BINARY, reason_required=True))
    run = asking.scored(
        "hallucination",
        _words(items),
        _summary(items, {Word.NO}, "chunks are contradicted by the answer"),
        verdicts=_verdicts_on_answer(record, items),
    )
    return run, _reasons(items, BINARY)


_CLAIM_LABELS = {
    Word.YES: VerdictLabel.SUPPORTED,
    Word.NO: VerdictLabel.CONTRADICTED,
    Word.BORDERLINE: VerdictLabel.UNSUPPORTED,
}
_RELEVANCE_LABELS = {
    Word.YES: VerdictLabel.RELEVANT,
    Word.NO: VerdictLabel.IRRELEVANT,
    Word.BORDERLINE: VerdictLabel.PARTLY_RELEVANT,
}


def _verdicts(
    listed: JsonValue, items: Sequence[Item], labels: dict[Word, VerdictLabel]
) -> tuple[Verdict, ...]:
    """Pair items and verdicts by position, as in deepeval."""
    texts = _texts(listed)
    judged = [*items, *[Item(word=None)] * len(texts)]
    return tuple(
        Verdict(claim=Claim(index=index, text=text), label=_label(item, labels), reason=item.reason)
        for index, (text, item) in enumerate(zip(texts, judged, strict=False))
    )


def _texts(listed: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


def _verdicts_on_answer(record: RagRecord, items: Sequence[Item]) -> tuple[Verdict, ...]:
    answer = record.answer or ""
    return tuple(
        Verdict(
            claim=Claim(index=index, text=answer, start=0, end=len(answer), kind="answer"),
            label=_label(item, _CLAIM_LABELS),
            reason=item.reason,
            chunk_ids=(chunk.id,),
        )
        for index, (chunk, item) in enumerate(zip(record.chunks, items, strict=False))
    )


def _label(item: Item, labels: dict[Word, VerdictLabel]) -> VerdictLabel:
    return labels[item.word] if item.word else VerdictLabel.UNJUDGED


def _label_of_all(items: Sequence[Item]) -> VerdictLabel:
    words = set(_words(items))
    if not words:
        return VerdictLabel.UNJUDGED
    return VerdictLabel.PARTLY_RELEVANT if len(words) > 1 else _RELEVANCE_LABELS[words.pop()]


def _words(items: Sequence[Item]) -> list[Word]:
    """Return the words that deepeval counts. Dropped ones leave no gap, so later ranks move up."""
    return [item.word for item in items if item.word]


def _summary(items: Sequence[Item], passing: Collection[Word], what: str) -> str:
    words = _words(items)
    dropped = len(items) - len(words)
    counted = f"{sum(word in passing for word in words)} of {len(words)} {what}"
    return f"{counted}; {dropped} outside the vocabulary dropped" if dropped else counted


def _reasons(items: Sequence[Item], words: Collection[Word]) -> tuple[str, ...]:
    return tuple(item.reason for item in items if item.word in words and item.reason)


def _list_of_statements(found: JsonObject) -> list[JsonValue]:
    stated = field_of(found, "statements")
    if not isinstance(stated, list):
        raise DeepEvalUnreadable("its field `statements` is no list")
    return stated


def _joined(truths: JsonValue) -> str:
    texts = list(truths) if isinstance(truths, (list, dict, str)) else [truths]
    if not all(isinstance(text, str) for text in texts):
        raise DeepEvalUnreadable("the reply to `truths`: its field `truths` is no list of texts")
    return "\n\n".join(map(str, texts))


_3 = _Version(profile="deepeval-3", unsure="idk", commas_first=True, read_verdicts=read_verdicts_3)
_4 = _Version(profile="deepeval-4", unsure="borderline", commas_first=False, read_verdicts=read_verdicts_4)

_Measure: TypeAlias = Callable[[RagRecord, _Asking], Awaitable[_Reading]]
_ON_ANSWER = (Part.QUESTION, Part.ANSWER, Part.CONTEXT)
_ON_REFERENCE = (Part.QUESTION, Part.CONTEXT, Part.REFERENCE)


def _metric(
    name: str,
    measure: _Measure,
    needs: tuple[Part, ...],
    version: _Version,
    direction: Direction = Direction.HIGHER_IS_BETTER,
) -> ToolMetric:
    async def run(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
        missing = missing_parts(record, needs)
        if Part.ANSWER in needs and record.answer == "":
            missing = Part.ANSWER.value
        if missing:
            return ToolRun.lacking(f"deepeval refuses a test case without {missing}")
        asking = _Asking(calls=calls, options=options, version=version)
        try:
            reading = await measure(record, asking)
            reason = await asking.reason(name, reading) if options.include_reason else None
        except DeepEvalUnreadable as exc:
            return ToolRun.failed(f"{exc}; deepeval neither repairs it nor asks again")
        return replace(reading[0], reason=reason)

    return ToolMetric(metric=name, profile=version.profile, needs=needs, run=run, direction=direction)


def _of_version(version: _Version, hallucination: Direction) -> tuple[ToolMetric, ...]:
    return (
        _metric("faithfulness", _faithfulness, _ON_ANSWER, version),
        _metric("answer_relevance", _answer_relevance, (Part.QUESTION, Part.ANSWER), version),
        _metric("context_precision", _context_precision, _ON_REFERENCE, version),
        _metric("context_recall", _context_recall, _ON_REFERENCE, version),
        _metric("context_relevance", _context_relevance, (Part.QUESTION, Part.CONTEXT), version),
        _metric("hallucination", _hallucination, _ON_ANSWER, version, hallucination),
    )


METRICS: tuple[ToolMetric, ...] = (
    *_of_version(_3, Direction.LOWER_IS_BETTER),
    *_of_version(_4, Direction.HIGHER_IS_BETTER),
)
