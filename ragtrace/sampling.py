"""Which answers are judged: a ratio by the position of a trace, and rules that raise or drop it for some."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ragtrace import semconv
from ragtrace.model import AttributeValue, RagRecord
from ragtrace.traces.trace import Span, StatusCode, Trace

Scalar: TypeAlias = str | bool | int | float

_MOST_CHARS: Final = 1_024
"""Characters of a text in which a pattern is searched; the text is untrusted."""
_BOUND: Final = re.compile(r"([<>])\s*(-?\d+(?:\.\d+)?)")


class Bound(NamedTuple):
    """A number that others are above or below."""

    number: float
    is_lowest: bool


@dataclass(frozen=True, slots=True)
class ValueTest:
    """Holds for a value that is one of these, or as one of these says; without any, for every value there is.

    A pattern is searched in the first 1,024 characters of a text.
    """

    any_of: tuple[Scalar | re.Pattern[str] | Bound, ...] = ()

    @classmethod
    def written(cls, values: Sequence[Scalar]) -> ValueTest:
        """Read ``"/PATTERN/"``, ``"> N"`` and ``"< N"``; ``"*"`` is any value, and others are themselves.

        Raises:
            ValueError: a pattern is no regular expression.
        """
        return cls() if "*" in values else cls(tuple(_read(each) for each in values))

    def holds(self, value: AttributeValue) -> bool:
        """Return whether the value, or one element of an array, is as it should be."""
        if isinstance(value, tuple):
            return any(self.holds(element) for element in value)
        return value is not None and (not self.any_of or any(_fits(value, each) for each in self.any_of))


def _read(written: Scalar) -> Scalar | re.Pattern[str] | Bound:
    if not isinstance(written, str):
        return written
    if bound := _BOUND.fullmatch(written):
        return Bound(float(bound[2]), is_lowest=bound[1] == ">")
    if len(written) > 1 and written[0] == written[-1] == "/":
        try:
            return re.compile(written[1:-1])
        except re.error as exc:
            raise ValueError(f"{written!r} is no regular expression: {exc}") from exc
    return written


def _fits(value: AttributeValue, wanted: Scalar | re.Pattern[str] | Bound) -> bool:
    if isinstance(wanted, re.Pattern):
        return isinstance(value, str) and wanted.search(value[:_MOST_CHARS]) is not None
    # in Python 1 == True, but an attribute with the value 1 is not a flag
    if isinstance(wanted, Bound):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return value > wanted.number if wanted.is_lowest else value < wanted.number
    return isinstance(wanted, bool) == isinstance(value, bool) and wanted == value


RULE_RATIO: Final = "ratio"
"""``ragtrace.sample.rule`` of answers that the ratio kept."""
_RESOLUTION_BITS: Final = 53  # every fraction of this many bits is exact in a double


def keeps(trace_id: str, rate: float) -> bool:
    """Return whether a rate in [0, 1] keeps the trace.

    The result is the same at every replica and in back-fill. Higher rates keep everything that lower rates
    keep.
    """
    return position_of(trace_id) < rate


def position_of(trace_id: str) -> float:
    """Return the position of a trace in [0, 1): uniform over ids.

    The id is hashed, so that the choice is independent of the application's head sampler, which compares the
    id's own bits (OpenTelemetry's ``TraceIdRatioBased``).
    """
    digest = hashlib.sha256(f"ragtrace|{trace_id}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _RESOLUTION_BITS)) / (1 << _RESOLUTION_BITS)


_MOST_TENANT_CHARS: Final = 128


class Choice(NamedTuple):
    """The rule that decides about an answer, and its rate."""

    rule: str
    rate: float
    is_drop: bool = False
    """Whether the answer is dropped, even if other rules keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Sets a rate for the answers that satisfy all its conditions.

    One span of the trace must satisfy all conditions on spans (service, error, attributes). The other
    conditions are on the answer.
    """

    name: str
    rate: float = 1.0
    """With 0, the answers are dropped, even if other rules keep them."""
    service: ValueTest | None = None
    error: bool = False
    """A span of the trace has the status ERROR."""
    attributes: Mapping[str, ValueTest] = field(default_factory=dict)
    """Attributes of the span, or else of its resource."""
    absent: frozenset[str] = frozenset()
    """Attributes that neither a span of the trace nor its resource has."""
    tenant: ValueTest | None = None
    model: ValueTest | None = None
    prompt_version: ValueTest | None = None
    slower_than_s: float | None = None
    """The answer's span took longer."""
    question_chars: ValueTest | None = None
    answer_chars: ValueTest | None = None

    @property
    def is_about_feedback(self) -> bool:
        """Whether it needs user feedback, which comes minutes after the trace."""
        return any(key.startswith(semconv.FEEDBACK_PREFIX) for key in self.attributes)

    def matches_spans(self, trace: Trace) -> bool:
        """Return whether the conditions on spans hold, which is the same for all answers of the trace."""
        if any(_attribute(span, key) is not None for key in self.absent for span in trace.spans):
            return False
        asks = self.service is not None or self.error or bool(self.attributes)
        return not asks or any(self._matches_span(span) for span in trace.spans)

    def matches_answer(self, record: RagRecord, tenant: str) -> bool:
        """Return whether the conditions on the answer hold."""
        asked: tuple[tuple[ValueTest | None, AttributeValue], ...] = (
            (self.tenant, tenant or None),
            (self.model, record.model),
            (self.prompt_version, record.prompt_version),
            (self.question_chars, len(record.question or "")),
            (self.answer_chars, len(record.answer or "")),
        )
        return self._is_slow_enough(record) and all(
            comparison is None or comparison.holds(value) for comparison, value in asked
        )

    def _is_slow_enough(self, record: RagRecord) -> bool:
        if self.slower_than_s is None:
            return True
        target = record.target
        return target is not None and (target.end_ns - target.start_ns) / 1e9 > self.slower_than_s

    def _matches_span(self, span: Span) -> bool:
        if self.error and span.status_code is not StatusCode.ERROR:
            return False
        if self.service and not self.service.holds(span.resource.attributes.get(semconv.SERVICE_NAME)):
            return False
        return all(comparison.holds(_attribute(span, key)) for key, comparison in self.attributes.items())


def _attribute(span: Span, key: str) -> AttributeValue:
    return span.attributes.get(key, span.resource.attributes.get(key))


RULE_SUSPICION: Final = "suspicion"
"""The name of the rate that rises with an answer's suspicion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspicionRate:
    """A rate that rises with suspicion: ``ratio + (to - ratio) * suspicion ** power``.

    It depends on the answer alone, and the trace id decides independently of it: each answer has a known
    probability, so averages weighted by its inverse stay unbiased (Horvitz and Thompson 1952). A low power
    is for averages: the least variance has rates proportional to the standard deviation that is left
    (Zrnic and Candès 2024). A high power is for finding flawed answers.
    """

    to: float = 1.0
    """The rate of an answer that is surely flawed; at least the ratio."""
    power: float = 3.0

    def rate(self, suspicion: float, *, ratio: float) -> float:
        """Return the rate of an answer with this suspicion."""
        return ratio + (self.to - ratio) * math.pow(suspicion, self.power)


RULE_APPLICATION: Final = "application"
"""The name of the rule by which an application turns evaluation of a call off or on."""
_NOT_WANTED: Final = Rule(
    name=RULE_APPLICATION,
    rate=0.0,
    attributes={semconv.EVALUATE: ValueTest((False, "false", "False", "off", "0"))},
)
_WANTED: Final = Rule(
    name=RULE_APPLICATION,
    attributes={semconv.EVALUATE: ValueTest((True, "true", "True", "on", "1"))},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """A ratio for every answer, and rules. The highest rate wins, so the order of rules or spans is
    irrelevant.

    A rule of rate 0 overrides all others.
    """

    ratio: float = 1.0
    rules: tuple[Rule, ...] = ()
    tenant: str = semconv.TENANT
    """The attribute that names the tenant."""
    on_request: bool = False
    """Whether ``ragtrace.evaluate = true`` on a span has every answer of its trace judged."""
    suspicion: SuspicionRate | None = None
    """Raises the ratio of suspicious answers."""

    @property
    def highest_rate(self) -> float:
        """The maximum rate: what it drops is dropped for any spans."""
        of_suspicion = self.suspicion.to if self.suspicion else 0.0
        return max([self.ratio, of_suspicion, *(rule.rate for rule in self._all_rules)])

    @property
    def _all_rules(self) -> tuple[Rule, ...]:
        """The rules, with those for what an application asks."""
        return (*self.rules, _NOT_WANTED, *((_WANTED,) if self.on_request else ()))

    @property
    def awaits_feedback(self) -> bool:
        """Whether user feedback may still keep an answer that is not sampled."""
        return any(rule.is_about_feedback and rule.rate > 0 for rule in self.rules)

    def of_trace(self, trace: Trace) -> TracePlan:
        """Return the plan for one trace; it evaluates the spans once for all answers."""
        tenants = {span.span_id: tenant for span in trace.spans if (tenant := self._tenant_of(span))}
        return TracePlan(
            ratio=self.ratio,
            suspicion=self.suspicion,
            rules=tuple(rule for rule in self._all_rules if rule.matches_spans(trace)),
            tenants=tenants,
        )

    def _tenant_of(self, span: Span) -> str:
        value = _attribute(span, self.tenant)
        return str(value)[:_MOST_TENANT_CHARS] if isinstance(value, str | int) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePlan:
    """A sampling plan for the answers of one trace."""

    ratio: float
    rules: tuple[Rule, ...]
    """The rules whose conditions on spans hold."""
    tenants: Mapping[str, str]
    """By span, if it or its resource names one."""
    suspicion: SuspicionRate | None = None

    def choose(self, record: RagRecord, suspicion: float | None = None) -> Choice:
        """Return the rule that decides about an answer; among equal rates the first one, the ratio last.

        ``suspicion`` is the answer's, if it is known.
        """
        tenant = self.tenant_of(record)
        matching = [rule for rule in self.rules if rule.matches_answer(record, tenant)]
        dropped = next((rule for rule in matching if not rule.rate), None)
        if dropped:
            return Choice(dropped.name, 0.0, is_drop=True)
        choices = [*(Choice(rule.name, rule.rate) for rule in matching), self._without_rule(suspicion)]
        return max(choices, key=lambda choice: choice.rate)

    def _without_rule(self, suspicion: float | None) -> Choice:
        if self.suspicion is None or suspicion is None:
            return Choice(RULE_RATIO, self.ratio)
        return Choice(RULE_SUSPICION, self.suspicion.rate(suspicion, ratio=self.ratio))

    def tenant_of(self, record: RagRecord) -> str:
        """Return the tenant of an answer: from its span or resource, else from any span."""
        own = self.tenants.get(record.target.span_id) if record.target else None
        return own or next(iter(self.tenants.values()), "")
