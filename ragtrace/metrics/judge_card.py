"""What was measured of a judge against people: its calibration, and its card.

``ragtrace calibrate`` writes both: the calibration (``--save``) for `evaluate` and the collector to ask and
cut by, the card (``--card``) to say whether the judge beats one lexical feature. Package data holds the cards
of ragtrace's own judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ragtrace.errors import ConfigError
from ragtrace.files import replace_file
from ragtrace.metrics.settings import VerifyForm, VerifySettings
from ragtrace.model import JudgeIdentity
from ragtrace.stats import JudgeErrors
from ragtrace.text import in_words

DEFAULT_THRESHOLD = 0.5
"""Where a score is cut if nothing was measured."""


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


SavedT = TypeVar("SavedT", bound=_Saved)


class MeasuredOn(_Saved):
    """The basis of a recommendation, for people."""

    files: list[str]
    answers: int
    claims: int
    balanced_accuracy: float
    low: float | None = None
    high: float | None = None
    answer_errors: JudgeErrors | None = None
    """On whole answers, without those that the judge left open: `ragtrace report` corrects by them. ``None``
    if a threshold was moved: they were measured without it."""


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
    return _read(Calibration, path, f"the calibration {str(path)!r}")


def _read(kind: type[SavedT], path: str | Path, what: str) -> SavedT:
    try:
        return kind.model_validate_json(Path(path).read_bytes())
    except OSError as exc:
        raise ConfigError(f"{what} cannot be read: {exc.strerror}") from exc
    except ValidationError as exc:
        fault = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the top"
        raise ConfigError(f"{what} is wrong at {where}: {in_words(fault)}") from None


_FOLDER: Final = "cards"
LEAST_CONTRADICTED_PRECISION: Final = 0.5
"""Below, people call most of what the judge calls contradicted something else."""

CardKey: TypeAlias = tuple[str, str, str]
"""Provider, model and screen."""


class CardState(StrEnum):
    """Whether a judge was measured: ``ragtrace.judge.card``."""

    NONE = "none"
    """Nobody measured it."""
    BELOW_FLOOR = "below_floor"
    """It is no better than the share of a claim's words found in the chunks."""
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalEstimate:
    """A number with its 95% interval, if the sample allows one."""

    value: float
    low: float | None = None
    high: float | None = None


class CardAnswers(_Saved):
    """Whole answers by what the judge says, and how many of them people call flawed."""

    passed: int
    passed_flawed: int
    """What `pass` missed."""
    failed: int
    failed_flawed: int
    undecided: int
    undecided_flawed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskCoverage:
    """How much a judge can decide if no more than ``risk`` of the decided claims may be wrong."""

    risk: float
    coverage: IntervalEstimate
    """The largest share of all claims, the surest first, that stays within it."""


class CardSet(_Saved):
    """What was measured on one file."""

    name: str
    digest: str
    """Of the file: the first 16 hex digits of its sha256."""
    source: str = ""
    """Where the figures come from, if this version did not compute them."""
    answers: int | None = None
    documents: int | None = None
    claims: int | None = None
    unsupported: int | None = None
    """Claims that people call unsupported."""
    decided: IntervalEstimate | None = None
    precision: IntervalEstimate | None = None
    """Of the verdict *unsupported*."""
    recall: IntervalEstimate | None = None
    """Of all unsupported claims; open ones count as missed."""
    recall_of_decided: IntervalEstimate | None = None
    contradicted_precision: IntervalEstimate | None = None
    """Of the verdict *contradicted*: the share that people call contradicted."""
    two_way: IntervalEstimate | None = None
    """Balanced accuracy over all claims, open ones as unsupported."""
    auc: IntervalEstimate | None = None
    """Of the probability of support."""
    calibration_error: float | None = None
    """Expected calibration error, in ten bins."""
    floor_two_way: IntervalEstimate | None = None
    floor_auc: IntervalEstimate | None = None
    two_way_lead: IntervalEstimate | None = None
    """Balanced accuracy minus the floor's, paired: on the same claims, drawn together by document."""
    auc_lead: IntervalEstimate | None = None
    """AUC minus the floor's, paired."""
    of_answers: CardAnswers | None = None
    risk_coverage_area: IntervalEstimate | None = None
    """AURC: the mean share of errors over all coverages."""
    floor_risk_coverage_area: IntervalEstimate | None = None
    risk_limits: list[RiskCoverage] = []

    @property
    def beats_floor(self) -> bool | None:
        """Whether it ranks claims better than the floor, or, without probabilities, judges them better."""
        ours, floor = (self.auc, self.floor_auc) if self.auc else (self.two_way, self.floor_two_way)
        return None if ours is None or floor is None else ours.value > floor.value


class JudgeCard(_Saved):
    """What is known of a judge."""

    version: int = Field(1, ge=1, le=1)
    provider: str
    model: str
    screen: str = ""
    """Of a cascade: what decides before the judge, and when."""
    date: str
    """ISO 8601."""
    sets: list[CardSet]

    @property
    def state(self) -> CardState:
        """Whether it beats the floor wherever both were measured."""
        compared = [found for measured in self.sets if (found := measured.beats_floor) is not None]
        return CardState.MEASURED if compared and all(compared) else CardState.BELOW_FLOOR

    @property
    def contradicts_reliably(self) -> bool:
        """Whether most of its verdicts *contradicted* are right, wherever that was measured."""
        measured = [of.contradicted_precision for of in self.sets if of.contradicted_precision is not None]
        return all(precision.value >= LEAST_CONTRADICTED_PRECISION for precision in measured)

    @property
    def key(self) -> CardKey:
        """Provider, model and screen."""
        return self.provider, self.model, self.screen

    def write(self, path: str | Path) -> None:
        """Write the file.

        Raises:
            ConfigError: it cannot be written.
        """
        replace_file(Path(path), f"{self.model_dump_json(indent=1, exclude_none=True)}\n", is_private=False)


def read_card(path: str | Path) -> JudgeCard:
    """Read what `JudgeCard.write` wrote.

    Raises:
        ConfigError: the file cannot be read, or is no card; names the field.
    """
    return _read(JudgeCard, path, f"the judge card {str(path)!r}")


@cache
def shipped_cards() -> Mapping[CardKey, JudgeCard]:
    """Return the package's cards by provider, model and screen."""
    folder = files("ragtrace.judge").joinpath(_FOLDER)
    found = [
        JudgeCard.model_validate_json(file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".json")
    ]
    return {card.key: card for card in found}


def card_of(judge: JudgeIdentity, further: Sequence[JudgeCard] = ()) -> JudgeCard | None:
    """Return the card of a judge, of the given ones first; ``None`` if nobody measured it."""
    given = {card.key: card for card in further}
    return {**shipped_cards(), **given}.get((judge.provider, judge.model, judge.screen))


def card_state(judge: JudgeIdentity, further: Sequence[JudgeCard] = ()) -> CardState:
    """Return whether a judge was measured, and beats the floor."""
    card = card_of(judge, further)
    return CardState.NONE if card is None else card.state


def check_card(judge: JudgeIdentity, further: Sequence[JudgeCard] = ()) -> None:
    """Refuse a judge that nobody measured, or that is no better than the floor.

    Raises:
        ConfigError: it is such a one.
    """
    state = card_state(judge, further)
    if state is CardState.MEASURED or judge.is_human:
        return
    why = {
        CardState.NONE: "has no card: nobody measured it",
        CardState.BELOW_FLOOR: "is by its card no better than the share of a claim's words in the chunks",
    }[state]
    raise ConfigError(
        f"the judge {judge.name} {why}, so `require_card` refuses it."
        " `ragtrace calibrate LABELED.jsonl --card card.json` measures it;"
        " `judge.card` (--set judge.card=FILE) names the card"
    )
