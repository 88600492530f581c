"""The sections about promises: what share of answers shall be good, and who is told when it is not."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr, model_validator

from ragtrace.answers.summary import base_name
from ragtrace_collector.config.values import Headers, Section, Timeout, shortest

_LOWER_IS_BETTER: Final = "hallucination"
_LEAST_KEY_CHARS: Final = 16
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")


def _plain(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("write a name of small letters, digits and hyphens, such as support-faithful")
    return value


PlainName = Annotated[str, AfterValidator(_plain)]


class SloAlertsConfig(Section):
    """When an objective is called broken."""

    fewest_answers: int = Field(default=20, ge=1, le=100_000)
    """Judged in the longer window of a burn-rate rule; fewer say nothing."""
    false_alarm: float = Field(default=0.05, gt=0, lt=1)
    """The chance of a built-in alarm within 10,000 judged answers while the objective is met."""


class SloConfig(Section):
    """One objective: this share of answers is good."""

    name: PlainName
    metric: str = Field(default="faithfulness", min_length=1)
    service: str | None = Field(default=None, min_length=1)
    model: str | None = Field(default=None, min_length=1)
    prompt_version: str | None = Field(default=None, min_length=1)
    tenant: str | None = Field(default=None, min_length=1)
    at_least: float | None = Field(default=None, gt=0, le=1)
    """The lowest good score. ``None``: an answer is good if the metric's own rule passes it."""
    objective: float = Field(default=0.95, gt=0, lt=1)
    window: Annotated[Timeout, AfterValidator(shortest(timedelta(days=7)))] = timedelta(days=30)
    alerts: SloAlertsConfig = SloAlertsConfig()

    @model_validator(mode="after")
    def _better_is_higher(self) -> SloConfig:
        if self.at_least is not None and base_name(self.metric) == _LOWER_IS_BETTER:
            raise ValueError(
                f"a low score of {self.metric} is the good one: leave `at_least` out, and the metric's own"
                " rule says which answers are good"
            )
        return self

    @property
    def dimensions(self) -> dict[str, str]:
        """What narrows the traffic, by the key in this section."""
        named = {
            "service": self.service,
            "model": self.model,
            "prompt_version": self.prompt_version,
            "tenant": self.tenant,
        }
        return {key: value for key, value in named.items() if value is not None}


def _reachable(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().startswith(("http://", "https://")):
        # not quoted: it may be a key
        raise ValueError("write a URL that begins with https:// or http://")
    return value


SecretUrl = Annotated[SecretStr, AfterValidator(_reachable)]
"""A URL that is a secret itself, as those of incoming webhooks are."""


class AlertSinkConfig(Section):
    """Who is told: a webhook, or a channel of Slack."""

    name: PlainName | None = None
    webhook: SecretUrl | None = None
    slack: SecretUrl | None = None
    headers: Headers = {}
    secret: SecretStr | None = None
    timeout: Timeout = timedelta(seconds=10)

    @model_validator(mode="after")
    def _one_way(self) -> AlertSinkConfig:
        if (self.webhook is None) is (self.slack is None):
            raise ValueError("write `webhook` or `slack`: where the notice goes")
        if self.slack is not None and (self.secret is not None or self.headers):
            raise ValueError("`secret` and `headers` are for a `webhook`: Slack's address is the secret")
        if self.secret is not None and len(self.secret.get_secret_value()) < _LEAST_KEY_CHARS:
            raise ValueError(f"`secret` is shorter than {_LEAST_KEY_CHARS} characters: make a longer one")
        return self

    @property
    def key(self) -> str:
        """Name it for the outbox and for people; it holds no part of the URL."""
        kind = "webhook" if self.webhook is not None else "slack"
        return f"alert:{self.name or kind}"


class AlertsConfig(Section):
    """Where notices go when an objective is broken, and when it is met again."""

    to: tuple[AlertSinkConfig, ...] = ()

    @model_validator(mode="after")
    def _named_apart(self) -> AlertsConfig:
        keys = [sink.key for sink in self.to]
        if len(set(keys)) != len(keys):
            raise ValueError("two of `to` have the same name: give each a `name` of its own")
        return self
