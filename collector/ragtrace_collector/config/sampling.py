"""The section ``sample``: which answers are judged."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ragtrace import semconv
from ragtrace.sampling import (
    RULE_RATIO,
    RULE_SUSPICION,
    Rule,
    SamplingPlan,
    Scalar,
    SuspicionRate,
    ValueTest,
)
from ragtrace_collector.config.values import AlternativeForm, Duration, Section

_RESERVED: Final = (RULE_RATIO, RULE_SUSPICION, "tenant", "neighbour")
_CONDITIONS: Final = (
    "service",
    "status",
    "attributes",
    "tenant",
    "model",
    "prompt_version",
    "slower_than",
    "question_chars",
    "answer_chars",
)


def _compared(value: object) -> object:
    """Let a comparison be written as the one value that is asked for, or as several."""
    values = value if isinstance(value, list | tuple) else (value,)
    if not values or any(not isinstance(each, str | bool | int | float) for each in values):
        raise ValueError(
            'compare with a text, a number, true, false, "/PATTERN/", "> N", "< N", "*" for any value, or'
            " a list of them"
        )
    ValueTest.written(values)
    return values


Compared = Annotated[
    tuple[Scalar, ...], BeforeValidator(_compared), AlternativeForm("string", "number", "boolean")
]


class RuleConfig(Section):
    """A rate for the answers that satisfy all of its conditions; 0 drops them."""

    name: str = Field(min_length=1, max_length=64)
    rate: float = Field(default=1.0, ge=0, le=1)
    service: Compared | None = None
    status: Literal["error"] | None = None
    attributes: dict[str, Compared | None] = {}
    tenant: Compared | None = None
    model: Compared | None = None
    prompt_version: Compared | None = None
    slower_than: Duration | None = None
    question_chars: Compared | None = None
    answer_chars: Compared | None = None

    @model_validator(mode="after")
    def _says_something(self) -> RuleConfig:
        if self.name in _RESERVED:
            raise ValueError(f"{self.name!r} is the name of a rule that is built in: choose another")
        if not any(getattr(self, condition) for condition in _CONDITIONS):
            raise ValueError(f"say which answers: {', '.join(_CONDITIONS)}; for all there is `sample.ratio`")
        return self

    def opened(self) -> Rule:
        """Return what the sampler takes."""
        return Rule(
            name=self.name,
            rate=self.rate,
            service=_opened(self.service),
            error=self.status == "error",
            attributes={key: ValueTest.written(each) for key, each in self.attributes.items() if each},
            absent=frozenset(key for key, each in self.attributes.items() if each is None),
            tenant=_opened(self.tenant),
            model=_opened(self.model),
            prompt_version=_opened(self.prompt_version),
            slower_than_s=self.slower_than.total_seconds() if self.slower_than is not None else None,
            question_chars=_opened(self.question_chars),
            answer_chars=_opened(self.answer_chars),
        )


def _opened(values: tuple[Scalar, ...] | None) -> ValueTest | None:
    return ValueTest.written(values) if values else None


class SampleLimitConfig(Section):
    """How many answers a minute are judged at most."""

    answers: int | None = Field(default=None, gt=0)
    per_tenant: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _limits_something(self) -> SampleLimitConfig:
        if self.answers is None and self.per_tenant is None:
            raise ValueError("write `answers`, `per_tenant` or both: how many a minute")
        return self


class FollowUpConfig(Section):
    """Which answers are judged because another was found low."""

    below: float = Field(gt=0, le=1)
    metric: str | None = None
    same: tuple[Literal["session", "chunks", "prompt_version"], ...] = Field(
        default=("session", "chunks", "prompt_version"), min_length=1
    )
    most: int = Field(default=20, gt=0, le=1_000)


class SuspicionRateConfig(Section):
    """A rate that rises with an answer's suspicion."""

    to: float = Field(default=1.0, gt=0, le=1)
    power: float = Field(default=3.0, gt=0, le=20)


class SampleConfig(Section):
    """Which answers are judged."""

    ratio: float = Field(default=1.0, ge=0, le=1)
    rules: tuple[RuleConfig, ...] = ()
    tenant: str = Field(default=semconv.TENANT, min_length=1)
    on_request: bool = False
    suspicion: SuspicionRateConfig | None = None
    tenant_floor: int | None = Field(default=None, gt=0)
    """How many answers of each tenant are judged an hour at least."""
    limit: SampleLimitConfig | None = None
    neighbours: FollowUpConfig | None = None

    @field_validator("rules")
    @classmethod
    def _each_once(cls, value: tuple[RuleConfig, ...]) -> tuple[RuleConfig, ...]:
        names = [rule.name for rule in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice!r} names two rules: they would look the same on a carrier")
        return value

    @model_validator(mode="after")
    def _rises(self) -> SampleConfig:
        if self.suspicion is not None and self.suspicion.to <= self.ratio:
            raise ValueError(
                f"`suspicion.to` ({self.suspicion.to:g}) is not above `ratio` ({self.ratio:g}): the ratio is"
                " the rate of answers without suspicion, so write a lower one"
            )
        return self

    def plan(self) -> SamplingPlan:
        """Return the ratio and the rules: what depends on the answer alone."""
        rate = self.suspicion
        return SamplingPlan(
            ratio=self.ratio,
            rules=tuple(rule.opened() for rule in self.rules),
            tenant=self.tenant,
            on_request=self.on_request,
            suspicion=SuspicionRate(to=rate.to, power=rate.power) if rate else None,
        )
