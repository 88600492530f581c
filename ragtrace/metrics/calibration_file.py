"""The calibration file: what `ragtrace calibrate` recommends, for `evaluate` and the collector to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ragtrace.errors import ConfigError
from ragtrace.files.private import replace_file
from ragtrace.metrics.verify_settings import VerifyForm, VerifySettings
from ragtrace.model import JudgeIdentity
from ragtrace.validation import in_words

DEFAULT_THRESHOLD = 0.5
"""Where a score is cut if nothing was measured."""


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MeasuredShare(_Saved):
    """How often a judge was right."""

    right: int = Field(ge=0)
    of: int = Field(ge=0)

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.right > self.of:
            raise ValueError("`right` is more than `of`")
        return self


class AnswerErrors(_Saved):
    """The judge's errors on whole answers, with the saved settings; `ragtrace report` corrects by them.

    Answers that the judge left open are in neither share.
    """

    sensitivity: MeasuredShare
    """Of the answers that people support: those that the judge passes."""
    specificity: MeasuredShare
    """Of the other answers: those that it fails."""


class MeasuredOn(_Saved):
    """The basis of a recommendation, for people."""

    files: list[str]
    answers: int
    claims: int
    balanced_accuracy: float
    low: float | None = None
    high: float | None = None
    answer_errors: AnswerErrors | None = None
    """``None`` if a threshold was moved: the errors were measured without it."""


def _recommended(threshold: float | None) -> float | None:
    # earlier versions wrote this for no recommendation
    return None if threshold == DEFAULT_THRESHOLD else threshold


class Calibration(_Saved):
    """The best form of a judge's requests, and its best thresholds."""

    version: int = Field(1, ge=1, le=1)
    provider: str
    model: str
    screen: str = ""
    """Of a cascade: what decides before the judge, and when."""
    form: VerifyForm
    threshold: float = Field(ge=0, le=1)
    """The least P(yes) of a supported claim."""
    answer_threshold: Annotated[float | None, Field(ge=0, le=1), AfterValidator(_recommended)] = None
    """Faithfulness from which an answer passes; ``None`` if no threshold beats the default rule."""
    measured_on: MeasuredOn

    def settings(self, judge: JudgeIdentity) -> VerifySettings:
        """Return the verify settings of this judge.

        Raises:
            ConfigError: the calibration is of another judge.
        """
        measured = JudgeIdentity(provider=self.provider, model=self.model, screen=self.screen)
        if judge.name != measured.name:
            raise ConfigError(
                f"the calibration is of {measured.name}, and {judge.name} judges:"
                " measure that one with `ragtrace calibrate`"
            )
        return VerifySettings(calibrated=self.form, threshold=self.threshold)

    def write(self, path: str | Path) -> None:
        """Write the file.

        Raises:
            ConfigError: it cannot be written.
        """
        # it has no content, so a collector of another user may read it
        replace_file(Path(path), f"{self.model_dump_json(indent=2)}\n", is_private=False)


def read_calibration(path: str | Path) -> Calibration:
    """Read what `Calibration.write` wrote.

    Raises:
        ConfigError: the file cannot be read, or is not a calibration; names the field.
    """
    try:
        return Calibration.model_validate_json(Path(path).read_bytes())
    except OSError as exc:
        raise ConfigError(f"the calibration {str(path)!r} cannot be read: {exc.strerror}") from exc
    except ValidationError as exc:
        fault = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the top"
        raise ConfigError(f"the calibration {str(path)!r} is wrong at {where}: {in_words(fault)}") from None
