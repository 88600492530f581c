"""What a span, an evaluation and an answer take: measured or assumed, each with its spread."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

FILE: Final = Path(__file__).with_name("coefficients.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A likely number, between the lowest and the highest that may well be."""

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        """Refuse what is out of order, negative or no number."""
        if not 0 <= self.low <= self.likely <= self.high < float("inf"):
            raise ValueError(f"not in order, or below zero: {self.low}, {self.likely}, {self.high}")

    @classmethod
    def of(cls, number: float) -> Self:
        """Return a number that is certain."""
        return cls(low=number, likely=number, high=number)

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            low=self.low + other.low, likely=self.likely + other.likely, high=self.high + other.high
        )

    def __mul__(self, other: Spread | float) -> Spread:
        """Multiply two spreads as if both were lowest, or highest, at once."""
        by = other if isinstance(other, Spread) else Spread.of(other)
        return Spread(low=self.low * by.low, likely=self.likely * by.likely, high=self.high * by.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAt:
    """When, where and on what the coefficients were measured."""

    date: str
    machine: str
    commit: str
    versions: str
    others: float
    """The share of the machine that other programs took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The numbers of ``coefficients.toml``, which says what each of them is."""

    measured: MeasuredAt
    kept_span_us: Spread
    kept_kilobyte_us: Spread
    sampled_out_span_us: Spread
    sampled_out_kilobyte_us: Spread
    evaluation_ms: Spread
    judge_call_ms: Spread
    process_megabytes: Spread
    evaluation_megabytes: Spread
    open_trace_kilobytes: Spread
    received_megabytes: Spread
    stored_byte_bytes: Spread
    outcome_bytes: Spread
    index_row_bytes: Spread
    lexical_ms: Spread
    input_tokens: Spread
    output_tokens: Spread
    other_run: Spread
    kafka_span_us: Spread
    kafka_kilobyte_us: Spread
    kafka_store: Spread
    kafka_state: Spread
    kafka_spans: Spread


def load_coefficients(file: Path = FILE) -> Coefficients:
    """Return the coefficients that come with the package."""
    return parse_coefficients(file.read_text("utf-8"))


def parse_coefficients(text: str) -> Coefficients:
    """Parse them.

    Raises:
        ValueError: a number is missing, unknown or out of order.
    """
    table = tomllib.loads(text)
    spreads: Mapping[str, Any] = {**table["coefficients"], **table["assumed"]}
    known = {field.name for field in fields(Coefficients)} - {"measured"}
    if known != spreads.keys():
        raise ValueError(f"missing or unknown coefficients: {', '.join(sorted(known ^ spreads.keys()))}")
    return Coefficients(
        measured=MeasuredAt(**table["measured"]),
        **{name: Spread(**value) for name, value in spreads.items()},
    )
