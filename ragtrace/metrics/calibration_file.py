"""The calibration file: what `ragtrace calibrate` recommends, for `evaluate` and the collector to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ragtrace.errors import ConfigError
from ragtrace.files.private import replace_file
from ragtrace.metrics.verify_settings import VerifyForm, VerifySettings
from ragtrace.model import JudgeIdentity
from ragtrace.validation import in_words

DEFAULT_THRESHOLD = 0.5
"""Where a score is cut if nothing was measured."""


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MeasuredOn(_Saved):
    """What a recommendation rests on: for people."""

    files: list[str]
    answers: int
    claims: int
    balanced_accuracy: float
    low: float | None = None
    high: float | None = None


def _recommended(threshold: float | None) -> float | None:
    # what earlier versions wrote where they recommended nothing
    return None if threshold == DEFAULT_THRESHOLD else threshold


class Calibration(_Saved):
    """How a judge is best asked, and where its numbers are best cut."""

    version: int = Field(1, ge=1, le=1)
    provider: str
    model: str
    form: VerifyForm
    threshold: float = Field(ge=0, le=1)
    """P(yes) from which a claim counts as supported."""
    answer_threshold: Annotated[float | None, Field(ge=0, le=1), AfterValidator(_recommended)] = None
    """Faithfulness from which an answer passes; ``None`` where no share does better than the default rule."""
    measured_on: MeasuredOn

    def settings(self, judge: JudgeIdentity) -> VerifySettings:
        """Return how to ask this judge.

        Raises:
            ConfigError: it is not the judge that was measured.
        """
        if (judge.provider, judge.model) != (self.provider, self.model):
            raise ConfigError(
                f"the calibration is of {self.provider}:{self.model}, and {judge.provider}:{judge.model}"
                " judges: measure that one with `ragtrace calibrate`"
            )
        return VerifySettings(calibrated=self.form, threshold=self.threshold)

    def write(self, path: str | Path) -> None:
        """Write the file.

        Raises:
            ConfigError: it cannot be written.
        """
        # no content: a collector of another user may read it
        replace_file(Path(path), f"{self.model_dump_json(indent=2)}\n", is_private=False)


def read_calibration(path: str | Path) -> Calibration:
    """Read what `Calibration.write` wrote.

    Raises:
        ConfigError: the file cannot be read, or is no calibration; names the field.
    """
    try:
        return Calibration.model_validate_json(Path(path).read_bytes())
    except OSError as exc:
        raise ConfigError(f"the calibration {str(path)!r} cannot be read: {exc.strerror}") from exc
    except ValidationError as exc:
        fault = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the top"
        raise ConfigError(f"the calibration {str(path)!r} is wrong at {where}: {in_words(fault)}") from None
