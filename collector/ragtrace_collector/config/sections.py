"""The sections of the configuration, in the order of the pipeline. Defaults are those of ``config.yaml``."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    JsonValue,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from ragtrace import semconv
from ragtrace.backends import accepts_logs, accepts_spans, reads_openinference
from ragtrace.conversations import SessionSettings
from ragtrace.errors import ConfigError
from ragtrace.files import default_store
from ragtrace.judge.layers import DEFAULT_BAND, ScreenSpec
from ragtrace.sampling import RULE_RATIO, RULE_SUSPICION, Rule, SamplingPlan, Scalar, SuspicionRate, ValueTest
from ragtrace.text import in_words
from ragtrace.traces.attach import CarrierTime
from ragtrace.traces.extract import AttributeMapping, AttributePath, ContextFrom, ExtractRules
from ragtrace_collector.config.values import (
    Address,
    AlternativeForm,
    BudgetConfig,
    DriftConfig,
    Duration,
    Endpoint,
    EnvName,
    Files,
    Headers,
    HostName,
    HttpUrl,
    KafkaConfig,
    NearAddress,
    NearPath,
    OtlpUrl,
    PageUrl,
    Paths,
    Pattern,
    PostgresUrl,
    Prompt,
    ReceiveTlsConfig,
    Section,
    Size,
    Timeout,
    TlsConfig,
    TokenConfig,
    TraceUrl,
    named,
    nanoseconds,
)

_RESERVED: Final = (RULE_RATIO, RULE_SUSPICION, "tenant")
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


class ReceiveConfig(Section):
    """Where OTLP comes in."""

    grpc: Address | None = "127.0.0.1:4327"
    http: Address | None = "127.0.0.1:4328"
    max_message_bytes: Size = ByteSize(16 << 20)
    tls: ReceiveTlsConfig | None = None
    tokens: tuple[TokenConfig, ...] = ()
    tokens_file: NearPath | None = None
    insecure: bool = False
    allowed_hosts: tuple[HostName, ...] = ()
    kafka: KafkaConfig | None = None

    @model_validator(mode="after")
    def _one_receiver(self) -> ReceiveConfig:
        if self.grpc is None and self.http is None and self.kafka is None:
            raise ValueError(
                "`grpc` and `http` are both null, and there is no `kafka`: nothing could come in"
            )
        return self

    @model_validator(mode="after")
    def _sends_no_open_password(self) -> ReceiveConfig:
        if self.kafka is not None and self.kafka.sends_open_password and not self.insecure:
            raise ValueError(f"`kafka.options` {_OPEN_PASSWORD}")
        return self


_OPEN_PASSWORD: Final = (
    "would send the password readable to other machines: set `security.protocol: SASL_SSL`, use"
    " SCRAM-SHA-512, or set `receive.insecure: true` if the network protects it"
)


class AssembleConfig(Section):
    """How long spans of a trace are waited for."""

    quiet_period: Duration = timedelta(seconds=5)
    deadline: Duration = timedelta(seconds=60)
    linger: Duration = timedelta(minutes=10)
    max_revisions: int = Field(default=3, ge=0)
    max_open_traces: int = Field(default=50_000, gt=0)
    max_spans_per_trace: int = Field(default=5_000, gt=0)
    max_cpu: Timeout = timedelta(seconds=30)


class MappingConfig(Section):
    """Where an application's own attributes hold the parts of a RAG call."""

    question: Paths = ()
    answer: Paths = ()
    context: Paths = ()
    reference: Paths = ()
    session: Paths = ()
    tools: Pattern | None = None

    def opened(self) -> AttributeMapping:
        """Return what the extractor takes."""
        return AttributeMapping(
            question=tuple(map(AttributePath, self.question)),
            answer=tuple(map(AttributePath, self.answer)),
            context=tuple(map(AttributePath, self.context)),
            reference=tuple(map(AttributePath, self.reference)),
            session=tuple(map(AttributePath, self.session)),
            tools=re.compile(self.tools, re.IGNORECASE) if self.tools else None,
        )


class ExtractConfig(Section):
    """How RAG calls are read from spans."""

    context: Literal["spans", "prompt", "auto"] = "auto"
    mapping: MappingConfig = MappingConfig()
    earlier_turns: int = Field(default=3, ge=0, le=20)

    def opened(self) -> ExtractRules:
        """Return what the extractor takes."""
        return ExtractRules(
            mapping=self.mapping.opened(),
            context=ContextFrom(self.context),
            earlier_turns=self.earlier_turns,
        )


class SecondJudgeConfig(Section):
    """The judge to ask if the first fails a canary claim. What is not set is as of the judge."""

    use: NearAddress
    base_url: HttpUrl | None = None
    api_key_env: EnvName | None = None


class JudgeConfig(Section):
    """Who judges, and how it is asked."""

    use: NearAddress = "lexical"
    screen: NearAddress | None = None
    """Makes a cascade: it decides the claims that it is sure of, and the judge the others."""
    band: tuple[float, float] = DEFAULT_BAND
    """The screen's probabilities of support between which the judge decides."""
    base_url: HttpUrl | None = None
    api_key_env: EnvName = "OPENAI_API_KEY"
    api_key: SecretStr | None = None
    tls: TlsConfig | None = None
    headers: Headers = {}
    """Go along with each request, before our own."""
    extra_body: dict[str, JsonValue] = {}
    """What else each request says: part of the evaluator's version."""
    timeout: Timeout = timedelta(seconds=60)
    max_concurrency: int = Field(default=8, gt=0)
    """Of requests to each judge, and of answers that are judged."""
    second: Annotated[SecondJudgeConfig, BeforeValidator(named("use")), AlternativeForm("string")] | None = (
        None
    )
    embedder: NearAddress | None = None
    batch_size: int = Field(default=20, ge=1, le=200)
    """Claims in one request."""
    verify: Literal["auto", "json", "logprobs"] = "auto"
    calibration: NearPath | None = None
    card: Files = ()
    """What `ragtrace calibrate --card` wrote about the judge, and about `second`."""
    require_card: bool = False
    second_look: bool = False
    sentinel_rate: float = Field(default=1.0, ge=0, le=1)
    cache: Path | None = None
    prices: NearPath | None = None

    @model_validator(mode="after")
    def _has_a_band(self) -> JudgeConfig:
        if self.band != DEFAULT_BAND and self.screen is None:
            raise ValueError("`band` is of a screen: set `screen` (--set judge.screen), such as lexical")
        try:
            self.screen_spec()
        except ConfigError as exc:
            raise ValueError(str(exc)) from None
        return self

    @property
    def attempt_s(self) -> float:
        """How long one attempt at one answer may take, in seconds: as long as ten requests."""
        return 10 * self.timeout.total_seconds()

    def screen_spec(self) -> ScreenSpec | None:
        """Return who is asked before the judge, if this is a cascade."""
        return ScreenSpec(use=self.screen, band=self.band) if self.screen else None


class MetricConfig(Section):
    """One metric, where it passes, and what else it takes."""

    name: NearAddress
    profile: str = "ragtrace"
    peer_prompts: bool = False
    """Ask as the tool of the profile asks, instead of scoring our own verdicts by its rules."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    pass_when: str | None = None
    """The rule of a pass, in place of a threshold."""
    prompts: dict[str, Prompt] = {}
    """By the name of the prompt that each replaces; a text of several lines, or a path."""
    options: dict[str, JsonValue] = {}
    criterion: str | None = None
    """What the answer must do, instead of a metric that there is: ``The answer names the next step``."""

    @model_validator(mode="after")
    def _passes_by_one_rule(self) -> MetricConfig:
        if self.pass_when is not None and self.threshold is not None:
            raise ValueError(
                "`threshold` and `pass_when` both say when it passes: leave one out, or write"
                f" `score >= {self.threshold:g}` into the rule"
            )
        if self.pass_when is not None and self.profile != "ragtrace":
            raise ValueError(
                "`pass_when` is a rule of ragtrace's own profile: another tool's passes by a `threshold`"
            )
        return self

    @model_validator(mode="after")
    def _has_one_asker(self) -> MetricConfig:
        if self.peer_prompts and self.profile == "ragtrace":
            raise ValueError("`peer_prompts` needs a `profile`, such as deepeval-4: whose prompts?")
        if self.peer_prompts and self.prompts:
            raise ValueError("`prompts` are of our own metrics: leave them out with `peer_prompts`")
        return self


class EvaluateConfig(Section):
    """What is measured, and what happens when the judge fails."""

    metrics: tuple[
        Annotated[MetricConfig, BeforeValidator(named("name")), AlternativeForm("string")], ...
    ] = Field(default=(MetricConfig(name="faithfulness"),), min_length=1)
    retry_delays: tuple[Duration, ...] = tuple(
        timedelta(seconds=seconds) for seconds in (10, 60, 600, 3600, 14_400)
    )
    probe_delays: tuple[Timeout, ...] = Field(
        default=tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 600)), min_length=1
    )
    deadline: Timeout = timedelta(hours=24)

    @field_validator("metrics")
    @classmethod
    def _each_once(cls, value: tuple[MetricConfig, ...]) -> tuple[MetricConfig, ...]:
        names = [(metric.name, metric.profile) for metric in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice[0]!r} is named twice: both would write the same attributes")
        return value


class AttachConfig(Section):
    """Where scores go, and what the carrier span looks like."""

    mode: Literal["append", "hold"] = "append"
    hold_timeout: Duration = timedelta(seconds=30)
    carrier_time: CarrierTime = "auto"
    content: bool = True


class ExportConfig(Section):
    """One back end that gets the carriers, and with ``forward`` the originals too: spans or log records."""

    endpoint: Endpoint
    headers: Headers = {}
    tls: TlsConfig | None = None
    forward: bool = False
    openinference: bool | Literal["auto"] = "auto"

    @model_validator(mode="after")
    def _can_forward(self) -> ExportConfig:
        if self.forward and not self.accepts_spans and not self.accepts_logs:
            raise ValueError(
                "`phoenix:` and `langfuse:` addresses accept evaluations only: remove `forward`, and add an "
                "`export` with the address for spans"
            )
        return self

    @property
    def accepts_spans(self) -> bool:
        """Whether any spans can be sent there, not only evaluations."""
        return accepts_spans(self.endpoint)

    @property
    def accepts_logs(self) -> bool:
        """Whether any log records can be sent there."""
        return accepts_logs(self.endpoint)

    @property
    def reads_openinference(self) -> bool:
        """Whether carriers for it have OpenInference's ``evaluations.<i>.*``."""
        return reads_openinference(self.endpoint) if self.openinference == "auto" else self.openinference


class StoreConfig(Section):
    """Where what survives a crash is: in a file of one process, or in a PostgreSQL database of many."""

    path: Path | None = None
    url: PostgresUrl | None = None
    max_bytes: Size = ByteSize(2 << 30)
    retention: Duration = timedelta(days=7)
    encryption_keys: tuple[SecretStr, ...] = ()

    @property
    def file(self) -> Path:
        """The path, or what is the default on this machine.

        Raises:
            ConfigError: there is no such default.
        """
        return default_store() if self.path is None else self.path

    def at(self, place: str | Path) -> StoreConfig:
        """Return the same for another place, a path or ``postgresql://…``, with the keys that may decrypt it.

        Raises:
            ConfigError: it is the address of something else.
        """
        try:
            found = StoreConfig.model_validate(store_at(str(place)))
        except ValidationError as exc:
            raise ConfigError(f"the store: {in_words(exc.errors()[0])}") from None
        return self.model_copy(update={"path": found.path, "url": found.url})

    @model_validator(mode="after")
    def _is_in_one_place(self) -> StoreConfig:
        if self.path and self.url:
            raise ValueError("set `path` or `url`, not both: the store is in one place")
        return self


def store_at(place: object) -> object:
    """Return the section `store` for the text that it may be written as; anything else as it is."""
    if not isinstance(place, str):
        return place
    return {"url" if "://" in place else "path": place}


class IndexConfig(Section):
    """What is kept of judged answers for the pages."""

    content: bool = True
    max_age: Timeout = timedelta(days=90)


class TelemetryConfig(Section):
    """What the collector tells whoever runs it about itself."""

    listen: Address | None = "127.0.0.1:4329"
    otlp_endpoint: OtlpUrl | None = None
    scores_by: tuple[Literal["service", "model", "prompt_version", "tenant"], ...] = (
        "service",
        "model",
        "prompt_version",
        "tenant",
    )
    verdict_log: bool = False


class SessionsConfig(Section):
    """Judging conversations as a whole."""

    enabled: bool = False
    idle: Duration = timedelta(minutes=30)
    max_length: Duration = timedelta(hours=24)
    context_turns: int = Field(default=0, ge=0, le=20)

    @model_validator(mode="after")
    def _turns_are_kept(self) -> SessionsConfig:
        if self.context_turns and not self.enabled:
            raise ValueError(
                "`sessions.context_turns` shows turns that `sessions` keeps: set `sessions.enabled: true`"
            )
        return self

    def opened(self, *, tenant: str) -> SessionSettings:
        """Return what judges sessions; ``tenant`` is the attribute that names the tenant."""
        return SessionSettings(
            idle_ns=nanoseconds(self.idle),
            keep_ns=nanoseconds(self.max_length),
            context_turns=self.context_turns,
            tenant=tenant,
        )


class UiConfig(Section):
    """The page of judged answers."""

    listen: Address | None = None
    public_url: PageUrl | None = None
    traces: str | None = None
    links: dict[str, TraceUrl] = {}
    reviews: Path | None = None


class CollectorConfig(Section):
    """Everything the collector can be told. Without ``export``, verdicts stay in the store."""

    receive: ReceiveConfig = ReceiveConfig()
    assemble: AssembleConfig = AssembleConfig()
    extract: ExtractConfig = ExtractConfig()
    sample: SampleConfig = SampleConfig()
    judge: JudgeConfig = JudgeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    budget: BudgetConfig = BudgetConfig()
    drift: DriftConfig = DriftConfig()
    attach: AttachConfig = AttachConfig()
    export: tuple[ExportConfig, ...] = ()
    store: Annotated[StoreConfig, BeforeValidator(store_at), AlternativeForm("string")] = StoreConfig()
    index: IndexConfig = IndexConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    ui: UiConfig = UiConfig()
    sessions: SessionsConfig = SessionsConfig()
    drain_timeout: Duration = timedelta(seconds=20)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @property
    def most_index_rows(self) -> int:
        """How many rows the index may have: they take at most two fifths of ``store.max_bytes``."""
        return 2 * self.store.max_bytes // 5 // _INDEX_ROW_BYTES

    @property
    def has_listeners(self) -> bool:
        """Whether it listens for spans anywhere."""
        return bool(self.receive.grpc or self.receive.http)

    @model_validator(mode="after")
    def _can_hold(self) -> CollectorConfig:
        if self.attach.mode != "hold":
            return self
        if not any(export.forward and export.accepts_spans for export in self.export):
            raise ValueError(
                "`attach.mode: hold` writes scores onto spans on their way through, and no `export` has "
                "`forward: true`: set it where the application's spans are to go, or take `mode: append`"
            )
        if self.attach.hold_timeout <= self.assemble.quiet_period:
            raise ValueError(
                "`attach.hold_timeout` must be longer than `assemble.quiet_period`, before which nothing is "
                "judged: every span would be held for nothing"
            )
        return self

    @model_validator(mode="after")
    def _no_content_beside_the_encrypted_store(self) -> CollectorConfig:
        if self.store.encryption_keys and self.judge.cache is not None:
            raise ValueError(
                "`judge.cache` keeps replies, which quote content, as they are: leave it out where "
                "`store.encryption_keys` encrypt what the store keeps"
            )
        return self

    @model_validator(mode="after")
    def _distinct_endpoints(self) -> CollectorConfig:
        endpoints = [each.endpoint for each in self.export]
        if len(set(endpoints)) != len(endpoints):
            raise ValueError("`export` names an endpoint twice: each would get every carrier twice")
        own = {address for address in (self.receive.grpc, self.receive.http) if address}
        for endpoint in endpoints:
            if any(_same_address(endpoint, address) for address in own):
                raise ValueError(f"`export` endpoint {endpoint!r} is this collector's own receiver: a loop")
        return self


_INDEX_ROW_BYTES: Final = 800
"""The most that a row takes, with its share of the sums."""


def _same_address(endpoint: str, address: str) -> bool:
    host, _, port = address.rpartition(":")
    found = re.search(r"^(?:[a-z-]+:(?!\d))?(?:[a-z-]+://)?([^/:\s]+):(\d+)", endpoint)
    if found is None or port == "0":
        return False
    loopback = {"localhost", "127.0.0.1", "0.0.0.0"}
    return found[2] == port and (found[1] == host or {found[1], host} <= loopback)
