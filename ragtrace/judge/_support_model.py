"""The support model: the probability that the chunks support a claim, from lexical features.

A logistic regression. Its coefficients are package data, written by ``make train-lexical``, with what they
were trained on and what was measured out of fold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

MODEL_FILE: Final = "support_model.json"


class Feature(NamedTuple):
    """One input of the model: it is standardized, then weighted."""

    mean: float
    scale: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportModel:
    """Coefficients and cuts."""

    name: str
    """Changes with the coefficients: it is the name of the judge's model."""
    bias: float
    features: Mapping[str, Feature]
    number_missing: float
    """The share of supported claims among those with a number that no chunk has: an upper limit."""
    unsupported_below: float
    supported_from: float

    def support(self, features: Mapping[str, float]) -> float:
        """Return the probability that the chunks support a claim with these features."""
        logit = self.bias + sum(
            weight * (features[name] - mean) / scale for name, (mean, scale, weight) in self.features.items()
        )
        probability = 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))
        return min(probability, self.number_missing) if features["missing_numbers"] else probability

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> SupportModel:
        """Read the saved form."""
        return cls(
            name=saved["name"],
            bias=saved["bias"],
            features={name: Feature(**values) for name, values in saved["features"].items()},
            number_missing=saved["number_missing"],
            unsupported_below=saved["unsupported_below"],
            supported_from=saved["supported_from"],
        )


@cache
def shipped_model() -> SupportModel:
    """Return the model of the package."""
    return SupportModel.of(json.loads(files(__package__).joinpath(MODEL_FILE).read_text(encoding="utf-8")))
