"""The address of a verifier: ``nli:PATH`` or ``nli:ORG/NAME``, with settings like a URL's query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from ragtrace.errors import ConfigError

FAMILIES: Final = ("nli", "minicheck", "hhem", "tokens")
_WHOLE: Final = ("window", "threads", "batch")
_SHARES: Final = ("supported", "unsupported", "contradicted")
_TEXTS: Final = ("file", "family", "labels")
_SETTINGS: Final = (*_TEXTS, *_WHOLE, *_SHARES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """From which probabilities on there is a verdict. Between the first two, the judge abstains."""

    supported: float = 0.6
    """*supported* from this probability of support."""
    unsupported: float = 0.4
    """Below this, *contradicted* or *unsupported*."""
    contradicted: float = 0.9
    """*contradicted* from this probability of contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NliAddress:
    """Which model, and how it is run. A setting that is ``None`` is chosen by the model's own files."""

    where: str
    """A folder, or the name of a repository on the hub."""
    file: str | None = None
    """The ONNX file, relative to the folder."""
    family: str | None = None
    labels: tuple[str, ...] = ()
    """The names of its outputs, in order."""
    window: int | None = None
    """The most tokens that the model reads at once: chunk, claim and marks."""
    threads: int | None = None
    batch: int = 8
    """Pairs of window and claim that the model reads at once."""
    cuts: Cuts = Cuts()

    @property
    def verdict_settings(self) -> str:
        """What changes verdicts: part of the judge's identity."""
        cuts = self.cuts
        shares = (cuts.supported, cuts.unsupported, cuts.contradicted)
        return repr((self.family, self.labels, self.window, shares))

    @classmethod
    def parse(cls, argument: str) -> NliAddress:
        """Parse what is behind the colon.

        Raises:
            ConfigError: there is no model, or a setting is unknown or out of range.
        """
        where, _, query = argument.partition("?")
        if not where:
            raise ConfigError("the judge `nli` needs a model: write `nli:FOLDER` or `nli:ORG/NAME`")
        given = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := next((name for name in given if name not in _SETTINGS), None):
            raise ConfigError(
                f"the judge `nli` has no setting {unknown!r}: choose among {', '.join(_SETTINGS)}"
            )
        numbers = {name: _whole(name, given[name]) for name in _WHOLE if name in given}
        return cls(
            where=where,
            file=_file(given.get("file")),
            family=_family(given.get("family")),
            labels=tuple(label.strip() for label in given.get("labels", "").split(",") if label.strip()),
            window=numbers.get("window"),
            threads=numbers.get("threads"),
            batch=numbers.get("batch", 8),
            cuts=_cuts(given),
        )


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < int(value[:9]) <= 2**20):
        raise ConfigError(f"the judge `nli`: {name}={value!r} is not a whole number above 0")
    return int(value)


def _share(name: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise ConfigError(f"the judge `nli`: {name}={value!r} is not a probability from 0 to 1")
    return share


def _cuts(given: Mapping[str, str]) -> Cuts:
    cuts = Cuts(**{name: _share(name, given[name]) for name in _SHARES if name in given})
    if cuts.unsupported > cuts.supported:
        raise ConfigError(
            f"the judge `nli`: a claim would be both: unsupported below {cuts.unsupported:g}, supported from"
            f" {cuts.supported:g}"
        )
    return cuts


def _family(value: str | None) -> str | None:
    if value is not None and value not in FAMILIES:
        raise ConfigError(f"the judge `nli`: family={value!r} is none of {', '.join(FAMILIES)}")
    return value


def _file(value: str | None) -> str | None:
    if value is not None and (
        value.startswith("/") or ".." in value.split("/") or not value.endswith(".onnx")
    ):
        raise ConfigError(f"the judge `nli`: file={value!r} is not an .onnx file inside the model's folder")
    return value
