"""The carrier as tables: which attribute has which value of a judged answer, of what type, how long at most.

Carriers are written and read by these rows, and docs/spans.md is made from them. Reading trusts no back end:
a value of another type is absent, never guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from ragtrace import semconv
from ragtrace.model import (
    AttributeValue,
    BlameClass,
    CompatStatus,
    DecidedBy,
    Direction,
    Label,
    SkipReason,
    TargetKind,
    VerdictLabel,
)
from ragtrace.traces.trace import cut_utf8

Attributes: TypeAlias = Mapping[str, AttributeValue]

_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_MOST_IDS: Final = 32
_MOST_ID_BYTES: Final = 256
_MOST_COUNTED: Final = 2**63 - 1


def text_of(attributes: Attributes, key: str) -> str | None:
    """Return a string."""
    value = attributes.get(key)
    return value if isinstance(value, str) else None


def number_of(attributes: Attributes, key: str) -> float | None:
    """Return a finite number. Back ends that store text only have it in digits (Langfuse)."""
    value = attributes.get(key)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def integer_of(attributes: Attributes, key: str) -> int | None:
    """Return a whole number. Back ends that have one type of number store it as a float."""
    value = attributes.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = number_of(attributes, key)
    return int(number) if number is not None and number.is_integer() else None


def flag_of(attributes: Attributes, key: str) -> bool:
    """Return whether a flag is set."""
    return attributes.get(key) in (True, "true", "True")


def _is_false(attributes: Attributes, key: str) -> bool:
    return attributes.get(key) in (False, "false", "False")


def texts_of(attributes: Attributes, key: str) -> tuple[str, ...]:
    """Return an array of strings. Back ends without arrays have it as JSON (Jaeger's older API)."""
    value = attributes.get(key)
    if isinstance(value, str) and value.startswith("["):
        with suppress(ValueError, RecursionError):
            value = tuple(json.loads(value))
    members = value if isinstance(value, tuple) else (value,)
    return tuple(member for member in members if isinstance(member, str))


def moment_of(attributes: Attributes, key: str) -> int | None:
    """Return an RFC 3339 time in UTC as Unix time in nanoseconds."""
    found = _MOMENT.fullmatch(text_of(attributes, key) or "")
    if found is None:
        return None
    try:
        since = datetime.fromisoformat(f"{found[1]}+00:00") - datetime.fromtimestamp(0, UTC)
    except ValueError:
        return None
    return since // timedelta(seconds=1) * 1_000_000_000 + int((found[2] or "0").ljust(9, "0"))


def rfc3339(time_ns: int) -> str:
    """Return a Unix time in nanoseconds as RFC 3339 in UTC."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


class Kind(NamedTuple):
    """A type of values: how one becomes an attribute, and an attribute one again."""

    name: str
    write: Callable[[Any], AttributeValue]
    """``None`` leaves the attribute out."""
    read: Callable[[Attributes, str], Any]


def _as_text(value: str) -> str:
    return cut_utf8(value, semconv.SAFE_STRING_BYTES)


def _as_id(value: str) -> str:
    return cut_utf8(value, _MOST_ID_BYTES)


def _as_number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _count(attributes: Attributes, key: str) -> int | None:
    found = integer_of(attributes, key)
    return None if found is None else min(max(found, 0), _MOST_COUNTED)


def _amount(attributes: Attributes, key: str) -> float | None:
    value = number_of(attributes, key)
    return value if value is not None and value >= 0 else None


def share_of(attributes: Attributes, key: str) -> float | None:
    """Return a number from 0 to 1."""
    value = number_of(attributes, key)
    return value if value is not None and 0 <= value <= 1 else None


def one_of(words: type[StrEnum]) -> Kind:
    """Make the kind of one of a few words."""
    known = {str(word): word for word in words}
    return Kind("string", str, lambda attributes, key: known.get(text_of(attributes, key) or ""))


TEXT: Final = Kind("string", _as_text, text_of)
WORD: Final = Kind("string", lambda value: _as_text(value) or None, text_of)
"""A text that is left out if it is empty."""
QUOTE: Final = Kind("string", lambda text: cut_utf8(text, semconv.SAFE_STRING_BYTES, mark=""), text_of)
"""Cut without a mark, so that it is still verbatim in the chunk."""
ID: Final = Kind("string", _as_id, text_of)
IDS: Final = Kind("string[]", lambda ids: tuple(map(_as_id, ids[:_MOST_IDS])), texts_of)
TEXTS: Final = Kind("string[]", lambda texts: texts or None, texts_of)
FEW_IDS: Final = Kind("string[]", lambda ids: IDS.write(ids) or None, texts_of)
MOMENT: Final = Kind("string", rfc3339, moment_of)
INTEGER: Final = Kind("int", int, integer_of)
COUNT: Final = Kind("int", int, _count)
COUNT_IF_ANY: Final = Kind("int", lambda value: value or None, _count)
NUMBER: Final = Kind("double", _as_number, number_of)
SHARE: Final = Kind("double", _as_number, share_of)
AMOUNT: Final = Kind("double", _as_number, _amount)
FLAG: Final = Kind("bool", bool, flag_of)
NUMBERS: Final = Kind("double", lambda value: value, lambda attributes, key: None)
"""Several attributes, which the writer gives by their own names."""
COUNTS: Final = Kind("int", lambda value: value, lambda attributes, key: None)
"""The same, of whole numbers."""


class Field(NamedTuple):
    """An attribute of the carrier or of its events."""

    key: str
    """``<metric>`` in it stands for the metric's name."""
    path: str
    """Where the value is in the object that the table is about; empty if the writer gives it."""
    kind: Kind
    meaning: str
    """For docs/spans.md."""
    is_content: bool = False
    """Left out with ``attach.content: false``."""


class Table:
    """The attributes of one object, in their order."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._ways = [
            (field.key, "<metric>" in field.key, tuple(filter(None, field.path.split("."))), field)
            for field in fields
        ]

    def write(
        self, about: object, given: Attributes, *, content: bool = True, metric: str = ""
    ) -> dict[str, AttributeValue]:
        """Return the attributes of an object; ``given`` has what is not in it or comes in place of it."""
        told: dict[str, AttributeValue] = {}
        for key, is_named, way, field in self._ways:
            if key in given:
                value: Any = given[key]
            elif way:
                value = about
                for name in way:
                    value = getattr(value, name, None)
            else:
                continue
            if value is None or (field.is_content and not content):
                continue
            if isinstance(value, dict):
                told |= value
            elif (written := field.kind.write(value)) is not None:
                told[key.replace("<metric>", metric) if is_named else key] = written
        return told

    def read(self, attributes: Attributes, *, metric: str = "") -> dict[str, Any]:
        """Return what attributes say of an object, by its fields; those of fields within it are mappings."""
        told: dict[str, Any] = {}
        for key, is_named, way, field in self._ways:
            name = key.replace("<metric>", metric) if is_named else key
            if way and (name in attributes or field.kind is FLAG):
                value = field.kind.read(attributes, name)
                if value is not None:
                    within = told
                    for step in way[:-1]:
                        within = within.setdefault(step, {})
                    within[way[-1]] = value
        return told


ANSWER: Final = Table(
    Field(semconv.OPERATION_NAME, "", TEXT, "`evaluation`"),
    Field(semconv.OI_KIND, "", TEXT, "`EVALUATOR`"),
    Field(semconv.RESPONSE_ID, "record.response_id", TEXT, "of the answer"),
    Field(semconv.SESSION_ID, "record.session_id", TEXT, "of the answer"),
    Field(semconv.CONVERSATION_ID, "record.conversation_id", TEXT, "of the answer"),
    Field(semconv.BRIEF, "", TEXT, "a line for people"),
    Field(semconv.URL, "", TEXT, "the answer on ragtrace's page, if [`ui.public_url`](ui.md) is set"),
    Field(semconv.SCHEMA, "", TEXT, "`2`"),
    Field(semconv.TARGET_TRACE_ID, "record.target.trace_id", TEXT, "what was judged"),
    Field(semconv.TARGET_SPAN_ID, "record.target.span_id", TEXT, "what was judged"),
    Field(semconv.TARGET_KIND, "record.target.kind", one_of(TargetKind), "`answer`, `retrieval` or `trace`"),
    Field(semconv.TARGET_ROOT_NAME, "record.target.root_name", WORD, "copied for searches"),
    Field(semconv.TARGET_MODEL, "record.model", TEXT, "copied for searches"),
    Field(semconv.TARGET_PROMPT_VERSION, "record.prompt_version", TEXT, "copied for searches"),
    Field(semconv.TARGET_START, "record.target.start_ns", MOMENT, "the answer's start"),
    Field(semconv.TARGET_END, "record.target.end_ns", MOMENT, "its end"),
    Field(semconv.EVAL_MODE, "", TEXT, "`append`, `backfill` or `hold`"),
    Field(semconv.EVAL_RUN_ID, "evaluation.run_id", TEXT, "the run"),
    Field(semconv.EVAL_STARTED_AT, "evaluation.started_at_ns", MOMENT, "its real time"),
    Field(semconv.EVAL_DURATION_MS, "evaluation.duration_ms", COUNT, "its real duration"),
    Field(semconv.EVAL_SUPERSEDES, "supersedes", WORD, "the carrier that this one replaces"),
    Field(semconv.EVAL_INPUT_TRUNCATED, "evaluation.input_truncated", FLAG, "whether the judge saw a part"),
    Field(semconv.EVAL_INPUT_SHA256, "evaluation.input_sha256", TEXT, "what the judge saw"),
    Field(semconv.CONTEXT_COUNT, "", COUNT, "the answer's chunks"),
    Field(semconv.CONTEXT_SOURCE, "", TEXT, "`prompt`, if chunks are passages of the prompt"),
    Field(semconv.SAMPLE_RULE, "sample.rule", TEXT, "how it [was sampled](sampling.md#averages)"),
    Field(semconv.SAMPLE_RATE, "sample.rate", NUMBER, "the rule's rate"),
    Field(semconv.SAMPLE_PROBABILITY, "sample.probability", NUMBER, "absent if unknown"),
    Field(semconv.SAMPLE_SUSPICION, "sample.suspicion", NUMBER, "the suspicion that its rate depends on"),
    Field(semconv.SUSPICION, "sample.suspicion", NUMBER, "[how suspicious](judges.md#lexical), from 0 to 1"),
    Field(semconv.JUDGE_PROVIDER, "evaluation.judge.provider", TEXT, "the judge"),
    Field(semconv.JUDGE_MODEL, "evaluation.judge.model", TEXT, "the judge"),
    Field(semconv.JUDGE_SCREEN, "evaluation.judge.screen", WORD, "of a cascade: the screen and its band"),
    Field(semconv.JUDGE_CARD, "evaluation.judge_card", WORD, "`none`, `below_floor` or `measured`"),
    Field(semconv.JUDGE_CALLS, "evaluation.usage.calls", COUNT, "use"),
    Field(semconv.JUDGE_INPUT_TOKENS, "evaluation.usage.input_tokens", COUNT, "use"),
    Field(semconv.JUDGE_OUTPUT_TOKENS, "evaluation.usage.output_tokens", COUNT, "use"),
    Field(semconv.JUDGE_CACHED_TOKENS, "evaluation.usage.cached_tokens", COUNT, "use"),
    Field(semconv.JUDGE_REASONING_TOKENS, "evaluation.usage.reasoning_tokens", COUNT, "use"),
    Field(semconv.JUDGE_UNMETERED_CALLS, "evaluation.usage.unmetered_calls", COUNT_IF_ANY, "without tokens"),
    Field(semconv.JUDGE_COST_USD, "cost_usd", AMOUNT, "if the price is known"),
)
"""The carrier's attributes, from a judged answer; those of its outcomes follow."""

OUTCOMES: Final = Table(
    Field(semconv.EVAL_STATUS, "", TEXT, "`ok`, `partial`, `error` or `skipped`"),
    Field(semconv.EVAL_SKIP_REASON, "", TEXT, "a [reason for no score](metrics.md#no-score)"),
    Field(
        semconv.EVAL_COMPROMISED,
        "compromised",
        Kind("bool", lambda value: value or None, flag_of),
        "the judge failed a canary claim; its verdicts don't count",
    ),
    Field(semconv.SUSPICION, "suspicion", NUMBER, ""),
    Field(semconv.PASS, "", FLAG, "whether all metrics with a score passed"),
    Field("<metrics>", "", NUMBERS, ""),
    Field(semconv.BLAME_CLASS, "blame.primary", one_of(BlameClass), "which hop failed first"),
    Field(semconv.BLAME_CLASSES, "", TEXTS, "all that failed"),
    Field(semconv.BLAME_MISSING, "blame.missing", TEXTS, "what could tell the cause of further wrong claims"),
    Field(semconv.DIAGNOSIS, "", TEXT, "of `rag_score`: `healthy`, or what fails"),
    Field(semconv.COMPOSITE, "", NUMBER, "score of `rag_score`"),
)
"""The carrier's attributes, from an evaluation."""

METRIC: Final = Table(
    Field(f"{semconv.LABEL_PREFIX}<metric>", "label", one_of(Label), "`pass`, `fail`, `error` or `skipped`"),
    Field(f"{semconv.THRESHOLD_PREFIX}<metric>", "threshold", NUMBER, "lowest passing score, if that is all"),
    Field(f"{semconv.PASS_WHEN_PREFIX}<metric>", "pass_when", TEXT, "the rule, if it asks for more"),
    Field(f"{semconv.SCORE_PREFIX}<metric>", "score", NUMBER, "absent without a score"),
    Field(
        f"{semconv.COMPAT_STATUS_PREFIX}<metric>", "compat.status", one_of(CompatStatus), "of another tool"
    ),
    Field(f"{semconv.COMPAT_SCORE_PREFIX}<metric>", "compat.score", NUMBER, "its number, of any size"),
)
"""The carrier's attributes of each metric, from its outcome."""

RESULT: Final = Table(
    Field(semconv.EVALUATION_NAME, "", TEXT, "the metric"),
    Field(semconv.ERROR_TYPE, "error_type", TEXT, "of a failure, in place of a score"),
    Field(semconv.EVALUATION_SCORE, "score", NUMBER, "absent without a score"),
    Field(semconv.EVALUATION_LABEL, "label", one_of(Label), "`pass`, `fail` or `skipped`"),
    Field(semconv.EVAL_SKIP_REASON, "skip_reason", one_of(SkipReason), "if it was skipped"),
    Field(semconv.THRESHOLD, "threshold", NUMBER, "when it passes"),
    Field(semconv.PASS_WHEN, "pass_when", TEXT, "when it passes, if not by a threshold"),
    Field(semconv.DIRECTION, "direction", one_of(Direction), "`higher_is_better` or `lower_is_better`"),
    Field(semconv.PROMPT_SHA256, "prompt_sha256", TEXT, "what measured"),
    Field(f"{semconv.DETAIL_PREFIX}<reading>", "", NUMBERS, "[other readings](metrics.md#readings)"),
    Field(semconv.EVALUATION_EXPLANATION, "explanation", TEXT, "a sentence"),
    Field(semconv.RESPONSE_ID, "", TEXT, "of the answer"),
    Field(semconv.EVALUATOR_ID, "", TEXT, "what measured"),
    Field(semconv.EVALUATOR_VERSION, "evaluator_version", TEXT, "what measured"),
    Field(semconv.EVALUATOR_TYPE, "", TEXT, "`llm_judge`, `deterministic` or `human`"),
    Field(semconv.JUDGE_PROVIDER, "", TEXT, "the metric's judge (the second after a failed canary claim)"),
    Field(semconv.JUDGE_MODEL, "", TEXT, "the same"),
    Field(semconv.JUDGE_SCREEN, "", WORD, "the same"),
    Field(semconv.JUDGE_INPUT_TOKENS, "usage.input_tokens", COUNT, "of shared steps: don't add them up"),
    Field(semconv.JUDGE_OUTPUT_TOKENS, "usage.output_tokens", COUNT, "the same"),
    Field(
        f"{semconv.CLAIMS_PREFIX}{{total,supported,contradicted,unsupported,unjudged,emitted}}",
        "",
        COUNTS,
        "verdicts; `emitted`: with an event",
    ),
    Field(f"{semconv.CLAIMS_PREFIX}material_contradicted", "", COUNT, "by more than an incidental word"),
    Field(f"{semconv.CLAIMS_PREFIX}material_unsupported", "", COUNT, "the same, unsupported"),
    Field(
        f"{semconv.CHUNKS_PREFIX}{{total,relevant,partly_relevant,irrelevant,unjudged,emitted}}",
        "",
        COUNTS,
        "of chunks; statements have the same under `ragtrace.claims.`, criteria `met` and `not_met`",
    ),
    Field(semconv.EVAL_DURATION_MS, "duration_ms", COUNT, "until the result, with waiting for shared steps"),
    Field(semconv.STEPS, "", TEXTS, "a JSON object for each judge step, also a shared one"),
    Field(semconv.INTERMEDIATE, "", TEXTS, "the first 16 truths or questions as JSON objects"),
    Field(semconv.INTERMEDIATE_TOTAL, "", COUNT, "how many there are"),
    Field(semconv.TRUTHS_LIMIT, "", COUNT, "the limit of extracted truths"),
)
"""The event of a metric, from its outcome."""

CLAIM: Final = Table(
    Field(semconv.CLAIM_ASSERTION, "claim.text", TEXT, "the claim (a criterion always)", is_content=True),
    Field(
        semconv.CLAIM_QUOTE, "quote", QUOTE, "of the first chunk; of a criterion, the answer", is_content=True
    ),
    Field(semconv.CLAIM_REASON, "reason", TEXT, "the judge's reason", is_content=True),
    Field(semconv.CLAIM_CHUNK_IDS, "chunk_ids", IDS, "retrieved chunks"),
    Field(semconv.CLAIM_INDEX, "claim.index", INTEGER, "its number"),
    Field(
        semconv.CLAIM_KIND,
        "claim.kind",
        Kind("string", lambda kind: None if kind == "factual" else kind, text_of),
        "`sentence`, `criterion`, `opinion`, `meta`, …; absent of factual claims",
    ),
    Field(
        semconv.CLAIM_MATERIAL,
        "material",
        Kind("bool", lambda value: None if value else False, lambda told, key: not _is_false(told, key)),
        "`false`: the flaw is only an [incidental word](metrics.md#material-flaws); else absent",
    ),
    Field(semconv.CLAIM_METRIC, "", TEXT, "judging metric"),
    Field(semconv.CLAIM_METRICS, "", TEXTS, "all metrics, if several"),
    Field(semconv.CLAIM_QUOTE_VERIFIED, "quote_verified", FLAG, "`false`: not found, not shown"),
    Field(
        semconv.CLAIM_VERDICT,
        "label",
        one_of(VerdictLabel),
        "`supported`, `contradicted`, `unsupported`, `unjudged`; statements: `relevant`, `partly_relevant`,"
        " `irrelevant`, `unjudged`; criteria: `met`, `not_met`, `unjudged`",
    ),
    Field(semconv.REFERENCE_VERDICT, "label", one_of(VerdictLabel), "of a sentence of the reference"),
    Field(semconv.CLAIM_OFFSET_START, "claim.start", INTEGER, "characters in the answer"),
    Field(semconv.CLAIM_OFFSET_END, "claim.end", INTEGER, "characters in the answer"),
    Field(semconv.CLAIM_CONFIDENCE, "confidence", SHARE, "that the verdict is right, if the judge gives one"),
    Field(semconv.CLAIM_SUPPORT, "support", SHARE, "probability of support, if the judge gives one"),
    Field(semconv.CLAIM_DECIDED_BY, "decided_by", one_of(DecidedBy), "in a cascade: `screen` or `judge`"),
)
"""The event of a claim, from its verdict."""

CHUNK: Final = Table(
    Field(semconv.CHUNK_ID, "chunk_id", ID, "its id"),
    Field(semconv.CHUNK_RANK, "rank", INTEGER, "place from 0"),
    Field(
        semconv.CHUNK_LABEL, "label", one_of(VerdictLabel), "`relevant`, `partly_relevant`, `irrelevant`, …"
    ),
    Field(semconv.CHUNK_METRIC, "", TEXT, "as of claims"),
    Field(semconv.CHUNK_METRICS, "", TEXTS, "as of claims"),
    Field(semconv.CHUNK_REASON, "reason", TEXT, "the judge's reason", is_content=True),
    Field(semconv.CHUNK_CONFIDENCE, "confidence", SHARE, "if the judge gives one"),
    Field(semconv.CHUNK_SCORE, "", NUMBER, "the retriever's number"),
)
"""The event of a chunk, from its verdict."""

FAULT: Final = Table(
    Field(semconv.BLAME_CLASS, "blame", one_of(BlameClass), "which hop"),
    Field(semconv.BLAME_WHY, "why", TEXT, "a sentence"),
    Field(semconv.BLAME_CLAIM, "claim", INTEGER, "the wrong claim, from 0; absent of the whole answer"),
    Field(semconv.BLAME_CHUNK_IDS, "chunk_ids", FEW_IDS, "the evidence"),
    Field(semconv.BLAME_SPAN_ID, "span_id", WORD, "the span of the hop"),
    Field(semconv.BLAME_QUOTE, "quote", WORD, "the evidence", is_content=True),
)
"""The event of a failed hop."""
