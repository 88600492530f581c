"""Options of `ragtrace evaluate` that choose how the judge is asked about claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeAlias

import click

from ragtrace.metrics import StepLimits
from ragtrace.metrics.calibration_file import Calibration
from ragtrace.metrics.verify_settings import VerifyForm, VerifySettings
from ragtrace.model import JudgeIdentity

Callback: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How claims are asked about."""

    claims_per_call: int
    form: VerifyForm
    sentinel_rate: float
    second_look: bool

    def limits(self, measured: Calibration | None, judge: JudgeIdentity) -> StepLimits:
        """Return the limits of the steps; what a calibration measured is what ``auto`` means.

        Raises:
            ConfigError: another judge was measured.
        """
        settings = measured.settings(judge) if measured else VerifySettings()
        verify = replace(
            settings, form=self.form, sentinel_rate=self.sentinel_rate, second_look=self.second_look
        )
        return StepLimits(claims_per_call=self.claims_per_call, verify=verify)


def asking_options(callback: Callback) -> Callback:
    """Add the options; the callback gets ``asking``, an `Asking`."""

    @click.option(
        "--batch-size",
        type=click.IntRange(1, 200),
        default=StepLimits().claims_per_call,
        show_default=True,
        metavar="N",
        help="Claims asked about in one request; fewer for models whose replies are short.",
    )
    @click.option(
        "--verify",
        type=click.Choice([form.value for form in VerifyForm]),
        default=VerifyForm.AUTO.value,
        show_default=True,
        help="Form of the verdicts: json in batches, with quotes; logprobs, P(Yes) a claim; auto as"
        " --calibration says, else json.",
    )
    @click.option(
        "--sentinel-rate",
        type=click.FloatRange(0, 1),
        default=VerifySettings().sentinel_rate,
        show_default=True,
        metavar="SHARE",
        help="Of the records whose requests to a language model hold planted claims with known verdicts.",
    )
    @click.option("--second-look", is_flag=True, help="Ask again about claims that are not supported.")
    @wraps(callback)
    def with_asking(
        batch_size: int, verify: str, sentinel_rate: float, second_look: bool, **others: Any
    ) -> Any:
        asking = Asking(
            claims_per_call=batch_size,
            form=VerifyForm(verify),
            sentinel_rate=sentinel_rate,
            second_look=second_look,
        )
        return callback(asking=asking, **others)

    return with_asking
