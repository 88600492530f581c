"""promptfoo's context metrics (0.123.1): free text in and out, and a score of 0 if its grader fails.

White space, lines and words are those of its JavaScript. Source: promptfoo 0.123.1, compared with this
module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

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
    CompatStatus,
    Intermediate,
    Part,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import SamplingParameters
from ragtrace.scoring import score


def _longform_prompt(asked: str, answer: str) -> str:
    return _prompt(
        """Restate the answer to the question below as a list of statements, so that each is understood
        without the question and the others: names instead of pronouns, one fact each.""",
        "Write one statement a line, and nothing else: no heading, no empty lines.",
        fenced("question", asked),
        fenced("answer", answer),
    )


def _nli_prompt(context: str, statements: Sequence[str]) -> str:
    return _prompt(
        """Decide for each statement below whether it can be inferred from the context: Yes or No.
        Explain first, briefly, then give the verdict. What the context does not mention is a No.""",
        "Write for each statement, in their order:\n"
        "1. the statement\n"
        "Explanation: why Verdict: Yes.\n"
        "End with one line that repeats the verdicts alone, each followed by a full stop:\n"
        "Final verdict for each statement in order: Yes. No.",
        fenced("context", context),
        fenced(
            "statements", "\n".join(f"{number}. {line}" for number, line in enumerate(statements, start=1))
        ),
    )


def _question_prompt(answer: str) -> str:
    return _prompt(
        "Think of the question that the text below answers.",
        "Write that one question and nothing else.",
        fenced("text", answer),
    )


def _recall_prompt(context: str, reference: str) -> str:
    return _prompt(
        """Go through the reference answer below sentence by sentence and decide for each whether the
        context bears it out.""",
        "Write one numbered line a sentence: the sentence, a short reason, and at the end of the line"
        " [Attributed] or [Not Attributed]:\n"
        "1. the sentence. The reason. So [Attributed]",
        fenced("context", context),
        fenced("reference answer", reference),
    )


def _relevance_prompt(asked: str, context: str) -> str:
    return _prompt(
        """Copy from the context below the sentences that are needed to answer the question, character
        by character, changing nothing.""",
        "Write one sentence a line, and nothing else. If none helps, or the question cannot be answered"
        ' from the context, write "Insufficient Information" alone.',
        fenced("question", asked),
        fenced("context", context),
    )


def _prompt(task: str, form: str, *material: str) -> str:
    return "\n\n".join([" ".join(task.split()), form, AS_DATA, *material])


class _GraderError(Exception):
    """promptfoo reports a failed grader, with a score of 0."""


async def _faithfulness(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    longform = await _said(calls, "longform", _longform_prompt(record.question or "", record.answer or ""))
    statements = _lines(longform)
    if not statements:
        raise _GraderError("the grader's list of statements is empty")
    reply = await _said(calls, "nli", _nli_prompt(_joined(record), statements))
    tally = _tally(reply.lower().strip(_SPACE), text_fallback=options.text_fallback)
    return ToolRun.of(
        score("faithfulness", "promptfoo", tally, n_claims=len(statements)),
        f"{sum(tally)} of {len(tally)} verdicts are a yes, on {len(statements)} statements",
        verdicts=_claims(statements, tally),
    )


async def _answer_relevance(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    prompt = _question_prompt(record.answer or "")
    made = [await _said(calls, "question", prompt) for _ in range(options.strictness)]
    # one request per text, the question first
    (asked,) = await calls.embed([record.question or ""])
    vectors = [(await calls.embed([question]))[0] for question in made]
    if any(len(vector) != len(asked) for vector in vectors):
        return ToolRun.failed("the vectors of the questions are of different length: promptfoo raises here")
    cosines = [_cosine(asked, vector) for vector in vectors]
    found = score("answer_relevance", "promptfoo", cosines)
    return ToolRun.of(
        found,
        f"mean cosine of the question and {len(vectors)} questions made from the answer",
        intermediate=Intermediate(questions=tuple(made), similarities=tuple(cosines)),
    )


async def _context_recall(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    reply = await _said(calls, "recall", _recall_prompt(_joined(record), record.reference or ""))
    lines = [line for line in _lines(reply) if _ATTRIBUTED in line.lower() or _NOT_ATTRIBUTED in line.lower()]
    if not lines:
        raise _GraderError("the grader's reply marks no line [Attributed] or [Not Attributed]")
    found = [_NOT_ATTRIBUTED not in line.lower() for line in lines]
    return ToolRun.of(
        score("context_recall", "promptfoo", found),
        f"{sum(found)} of {len(found)} lines of the grader attributed to the context",
        verdicts=_claims(
            [_ENUMERATION.sub("", _MARK.sub("", line), count=1).strip(_SPACE) for line in lines], found
        ),
    )


async def _context_relevance(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
    reply = await _said(calls, "relevance", _relevance_prompt(record.question or "", _joined(record)))
    chunks = [chunk for chunk in record.chunks if (chunk.text or "").strip(_SPACE)]
    of_context, of_reply = len(chunks), _lines(reply)
    if len(record.chunks) == 1:  # one text, of which lines count, or sentences if it is one line
        text = record.chunks[0].text or ""
        of_context = len(_units(text))
        of_reply = _lines(reply) if len(_lines(text)) > 1 else _units(reply)
    echoed = [] if _INSUFFICIENT in reply else list(dict.fromkeys(of_reply))
    context = _normalized(_joined(record))
    quoted = [_normalized(_ENUMERATION.sub("", line, count=1)) for line in echoed]
    if quoted and not any(line in context for line in quoted):
        raise _GraderError("the grader's reply does not quote the context")
    # which unit of the context the reply echoes does not matter
    units = [[number < len(echoed)] for number in range(of_context)]
    return ToolRun.of(
        score("context_relevance", "promptfoo", units),
        f"{len(echoed)} relevant units quoted of {of_context}",
        chunk_verdicts=tuple(
            ChunkVerdict(chunk_id=chunk.id, rank=chunk.rank, label=_label_of(chunk.text or "", quoted))
            for chunk in chunks
        ),
    )


async def _said(calls: ToolCalls, step: str, prompt: str) -> str:
    text = (await calls.text(step, prompt, sampling=SamplingParameters(temperature=0.0))).text
    if not text:
        raise _GraderError(f"the grader said nothing to `{step}`")
    return text


_SPACE = (
    "\t\n\v\f\r \u00a0\u1680"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""JavaScript's white space."""
_SPACES = re.compile(f"[{_SPACE}]+")
_ENUMERATION = re.compile(rf"\A[{_SPACE}]*(?:[0-9]+[.)]|[-*])[{_SPACE}]*")
_SENTENCE_END = re.compile(rf"(?<=[.!?])[{_SPACE}]+")
_NUMBER_ALONE = re.compile("[0-9]+[.)]")
_FINAL_VERDICT = "final verdict for each statement in order:"
_YES_OR_NO = re.compile(r"\b(?:yes|no)\b", re.ASCII)
_ATTRIBUTED = "[attributed]"
_NOT_ATTRIBUTED = "[not attributed]"
_MARK = re.compile(r"\[(?:not )?attributed\]", re.IGNORECASE)
_INSUFFICIENT = "Insufficient Information"


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip(_SPACE)]


def _units(text: str) -> list[str]:
    lines = _lines(text)
    pieces = lines if len(lines) > 1 else _SENTENCE_END.split(text)
    bare = (piece.strip(_SPACE) for piece in pieces)
    return [piece for piece in bare if piece and not _NUMBER_ALONE.fullmatch(piece)]


def _tally(reply: str, *, text_fallback: bool) -> list[bool]:
    """Parse whether each statement is supported: from the final line, else by counting verdicts."""
    _, final, after = reply.partition(_FINAL_VERDICT)
    if final:
        verdicts = [verdict for verdict in after.split(".") if verdict.strip(_SPACE)]
        if verdicts and all(_YES_OR_NO.search(verdict) for verdict in verdicts):
            return ["yes" in verdict for verdict in verdicts]
    elif text_fallback:
        # `verdict: not sure` matches as a no
        counted = [verdict == "yes" for verdict in re.findall("verdict: (no|yes)", reply)]
        if counted:
            return counted
    raise _GraderError("the grader's verdicts on the statements cannot be read")


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in one)) * math.sqrt(sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0


def _normalized(text: str) -> str:
    return _SPACES.sub(" ", text.lower()).strip(_SPACE)


def _label_of(text: str, quoted: Sequence[str]) -> VerdictLabel:
    bare = _normalized(text)
    return VerdictLabel.RELEVANT if any(line and line in bare for line in quoted) else VerdictLabel.IRRELEVANT


def _claims(statements: Sequence[str], supported: Sequence[bool]) -> tuple[Verdict, ...]:
    labels = [VerdictLabel.SUPPORTED if yes else VerdictLabel.UNSUPPORTED for yes in supported]
    unjudged = [VerdictLabel.UNJUDGED] * len(statements)
    return tuple(
        Verdict(claim=Claim(index=index, text=text), label=label)
        for index, (text, label) in enumerate(zip(statements, [*labels, *unjudged], strict=False))
    )


def _joined(record: RagRecord) -> str:
    return "\n\n".join(contexts_of(record))


_Measure: TypeAlias = Callable[[RagRecord, ToolCalls, ToolOptions], Awaitable[ToolRun]]


def _metric(name: str, measure: _Measure, *needs: Part) -> ToolMetric:
    async def run(record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
        if missing := missing_parts(record, needs):
            return ToolRun.lacking(f"promptfoo refuses a test without {missing}")
        try:
            return await measure(record, calls, options)
        except _GraderError as exc:
            return ToolRun(status=CompatStatus.GRADER_ERROR, score=0.0, explanation=str(exc))

    return ToolMetric(metric=name, profile="promptfoo", needs=needs, run=run)


METRICS: tuple[ToolMetric, ...] = (
    _metric("faithfulness", _faithfulness, Part.QUESTION, Part.ANSWER, Part.CONTEXT),
    _metric("answer_relevance", _answer_relevance, Part.QUESTION, Part.ANSWER),
    _metric("context_recall", _context_recall, Part.CONTEXT, Part.REFERENCE),
    _metric("context_relevance", _context_relevance, Part.QUESTION, Part.CONTEXT),
)
