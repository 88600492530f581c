"""Settings of the verify step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ragtrace.errors import ConfigError
from ragtrace.judge_steps import VerifyForm


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """The settings of verify requests, which are part of the evaluator's version.

    Raises:
        ConfigError: a number is outside [0, 1].
    """

    form: VerifyForm = VerifyForm.AUTO
    calibrated: VerifyForm = VerifyForm.JSON
    """The form that ``auto`` tries first; `ragtrace calibrate` measures it."""
    threshold: float = 0.5
    """The least P(yes) of a supported claim."""
    second_look: bool = False
    """Ask again about each claim that is not supported, with the chunks in another order. Both must agree."""
    sentinel_rate: float = 1.0
    """Share of the records, chosen by digest, whose requests contain canary claims."""

    def __post_init__(self) -> None:
        for name in ("threshold", "sentinel_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"`{name}` of the verify step is {getattr(self, name)!r}: give 0 to 1")

    @property
    def uncalibrated(self) -> VerifySettings:
        """The same settings without the calibration."""
        return replace(self, calibrated=VerifyForm.JSON, threshold=0.5)

    @property
    def first_form(self) -> VerifyForm:
        """The form to try first: ``json`` or ``logprobs``."""
        chosen = self.calibrated if self.form is VerifyForm.AUTO else self.form
        return VerifyForm.LOGPROBS if chosen is VerifyForm.LOGPROBS else VerifyForm.JSON
