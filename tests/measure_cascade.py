"""Measures the cascade on labeled answers: ``python -m tests.measure_cascade qa.jsonl summary.jsonl``.

The screen is the judge without a key, out of fold by source document. People stand for a judge that is always
right; judges that err are given by the share of unsupported and of supported claims that they call right, and
err independently of the screen. Statements only: headings and refusals are no claims.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.train_lexical import SUPPORTED_FROM, UNSUPPORTED_BELOW, LabeledClaim, out_of_fold, read_claims

BANDS = ((0.1, 0.9), (0.3, 0.9), (0.1, 0.95), (0.3, 0.99))
JUDGES = ((1.0, 1.0), (0.9, 0.9), (0.8, 0.8))
"""Shares of unsupported and of supported claims that a judge calls right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascaded:
    """What a cascade does on one file."""

    claims: int
    decided: int
    """Claims that the screen decides."""
    wrong: int
    """Those it decides against people."""
    caught: float
    """Of the unsupported claims: the share that the screen calls unsupported."""
    passed: float
    """Of the unsupported claims: the share that the screen calls supported."""
    cleared: float
    """Of the supported claims: the share that the screen calls supported."""
    accused: float
    """Of the supported claims: the share that the screen calls unsupported."""
    answers: int
    uncalled: int
    """Answers of which the screen decides all claims: no call."""

    @property
    def calls(self) -> float:
        """Calls an answer, if the screen lists the claims; a judge alone takes two."""
        return (self.answers - self.uncalled) / self.answers

    def balanced_accuracy(self, sensitivity: float, specificity: float) -> float:
        found = self.caught + (1 - self.caught - self.passed) * sensitivity
        kept = self.cleared + (1 - self.cleared - self.accused) * specificity
        return (found + kept) / 2


def cascaded(claims: Sequence[LabeledClaim], support: Sequence[float], band: tuple[float, float]) -> Cascaded:
    """Decide what the screen is sure of, by the shipped cuts and a band."""
    said = [_said(claim, p, band) for claim, p in zip(claims, support, strict=True)]
    pairs = list(zip(claims, said, strict=True))
    unsupported = [verdict for claim, verdict in pairs if not claim.supported]
    supported = [verdict for claim, verdict in pairs if claim.supported]
    by_answer = [list(of) for _, of in groupby(pairs, key=lambda pair: pair[0].answer)]
    return Cascaded(
        claims=len(pairs),
        decided=sum(verdict is not None for verdict in said),
        wrong=sum(verdict is not None and verdict != claim.supported for claim, verdict in pairs),
        caught=unsupported.count(False) / len(unsupported),
        passed=unsupported.count(True) / len(unsupported),
        cleared=supported.count(True) / len(supported),
        accused=supported.count(False) / len(supported),
        answers=len(by_answer),
        uncalled=sum(all(verdict is not None for _, verdict in of) for of in by_answer),
    )


def _said(claim: LabeledClaim, support: float, band: tuple[float, float]) -> bool | None:
    low, high = band
    if support < min(low, UNSUPPORTED_BELOW):
        return False
    return True if support > high and support >= SUPPORTED_FROM and claim.may_be_supported else None


def _lines(files: Sequence[str]) -> Iterator[str]:
    read = {file: read_claims(file) for file in files}
    support = iter(out_of_fold([claim for claims in read.values() for claim in claims]))
    for file, claims in read.items():
        pairs = [(claim, p) for claim, p in zip(claims, support, strict=False) if claim.is_statement]
        for band in BANDS:
            found = cascaded([claim for claim, _ in pairs], [p for _, p in pairs], band)
            yield (
                f"{file.rpartition('/')[2]}, band {band[0]:g} to {band[1]:g}: the screen decides"
                f" {found.decided} of {found.claims} claims, {found.wrong} of them wrongly;"
                f" {found.uncalled} of {found.answers} answers without a call, {found.calls:.2f} calls an"
                " answer"
            )
            for sensitivity, specificity in JUDGES:
                alone = (sensitivity + specificity) / 2
                behind = found.balanced_accuracy(sensitivity, specificity)
                yield f"  a judge of {sensitivity:g}/{specificity:g}: {alone:.3f}, behind it {behind:.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="labeled answers, as `ragtrace calibrate` reads them")
    for line in _lines(parser.parse_args().files):
        print(line)
