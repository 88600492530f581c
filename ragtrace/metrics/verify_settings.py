"""How the verify step asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ragtrace.errors import ConfigError


class VerifyForm(StrEnum):
    """The form in which verdicts are asked for."""

    AUTO = "auto"
    """What a calibration found better, else ``json``; ``json`` too where there are no log-probabilities."""
    JSON = "json"
    """Batches of claims, verdicts with quotes, as one JSON object."""
    LOGPROBS = "logprobs"
    """One claim a call: the probability that the judge says *yes*. No quotes, but a confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """How claims are asked about: part of the evaluator's version.

    Raises:
        ConfigError: a number lies outside [0, 1].
    """

    form: VerifyForm = VerifyForm.AUTO
    calibrated: VerifyForm = VerifyForm.JSON
    """What ``auto`` tries first: `ragtrace calibrate` measures it."""
    threshold: float = 0.5
    """P(yes) from which a claim counts as supported."""
    second_look: bool = False
    """Ask again about claims that are not supported: alone, the chunks in another order. Both must agree."""
    sentinel_rate: float = 1.0
    """Share of the records, chosen by digest, whose requests hold planted claims with known verdicts."""

    def __post_init__(self) -> None:
        for name in ("threshold", "sentinel_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"`{name}` of the verify step is {getattr(self, name)!r}: give 0 to 1")

    @property
    def uncalibrated(self) -> VerifySettings:
        """The same settings, without what was measured of one judge."""
        return replace(self, calibrated=VerifyForm.JSON, threshold=0.5)

    @property
    def first_form(self) -> VerifyForm:
        """The form to try first: ``json`` or ``logprobs``."""
        chosen = self.calibrated if self.form is VerifyForm.AUTO else self.form
        return VerifyForm.LOGPROBS if chosen is VerifyForm.LOGPROBS else VerifyForm.JSON
