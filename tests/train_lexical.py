"""Trains the lexical judge's support model again: ``python -m tests.train_lexical qa.jsonl summary.jsonl``.

A logistic regression by Newton's method (ridge penalty), each file with the same weight. Everything that is
said about its accuracy is out of fold: five folds by source document. The same files give the same model.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ragtrace.calibration.measurement import JudgeCandidate, MeasuredAnswer, measure_all
from ragtrace.calibration.page import digest_of, judge_card
from ragtrace.calibration.summary import MeasurementPlan, stratum_of, summarize
from ragtrace.judge._words import WordIndex
from ragtrace.judge.lexical import (
    MODEL_FILE,
    ClaimedWords,
    Feature,
    LexicalJudge,
    SupportModel,
    WordShareJudge,
    best_windows,
    claim_kind,
    may_be_supported,
    support_features,
)
from ragtrace.judge_forms import NumberedText
from ragtrace.labeled_data import HumanLabel, LabeledAnswer, read_labeled
from ragtrace.metrics.judge_card import CardSet, JudgeCard
from ragtrace.metrics.settings import VerifyForm

Numbers: TypeAlias = npt.NDArray[np.float64]

TRAINED_ON: Final = "RAGTruth, development files (Niu et al. 2024; MIT)"
SHIPPED: Final = Path("ragtrace/judge") / MODEL_FILE
UNSUPPORTED_BELOW: Final = 0.65
SUPPORTED_FROM: Final = 0.92
_FOLDS: Final = 5
_RIDGE: Final = 300.0
_STEPS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledClaim:
    """A claim that people labeled, as the model sees it."""

    file: str
    document: str
    answer: int
    """The number of its answer in the file."""
    is_statement: bool
    supported: bool
    answer_supported: bool | None
    features: Mapping[str, float]
    may_be_supported: bool
    """Whether nothing but the probability stands against the verdict *supported*."""


def read_claims(path: str | Path) -> list[LabeledClaim]:
    return asyncio.run(_read_claims(path))


async def _read_claims(path: str | Path) -> list[LabeledClaim]:
    found: list[LabeledClaim] = []
    for number, answer in enumerate(read_labeled(path)):
        chunks = enumerate(answer.record.chunks, start=1)
        passages = await WordIndex.of(NumberedText(number=at, text=chunk.text or "") for at, chunk in chunks)
        for claim, label in zip(answer.claims, answer.labels, strict=True):
            claimed = ClaimedWords.of(claim.text, passages.grammar)
            windows = best_windows(claimed, passages)
            sequences = passages.sequences(claimed.order)
            found.append(
                LabeledClaim(
                    file=answer.file,
                    document=_document(answer),
                    answer=number,
                    is_statement=claim_kind(claim.text) == "factual",
                    supported=label is HumanLabel.SUPPORTED,
                    answer_supported=answer.supported,
                    features=support_features(claimed, passages, windows, sequences),
                    may_be_supported=may_be_supported(claimed, passages, windows),
                )
            )
    return found


def train(claims: Sequence[LabeledClaim], *, name: str = "") -> SupportModel:
    """Fit a model to claims."""
    names = list(claims[0].features)
    inputs = np.array([[claim.features[of] for of in names] for claim in claims])
    labels = np.array([claim.supported for claim in claims], dtype=np.float64)
    sizes = {file: sum(claim.file == file for claim in claims) for file in {claim.file for claim in claims}}
    weights = np.array([len(claims) / len(sizes) / sizes[claim.file] for claim in claims])
    means = np.average(inputs, axis=0, weights=weights)
    scales = np.sqrt(np.average((inputs - means) ** 2, axis=0, weights=weights))
    scales[scales < 1e-9] = 1.0
    bias, *found = _fitted(np.c_[np.ones(len(claims)), (inputs - means) / scales], labels, weights)
    without_number = [
        claim.supported for claim in claims if claim.is_statement and claim.features["missing_numbers"]
    ]
    return SupportModel(
        name=name,
        bias=round(bias, 4),
        features={
            of: Feature(mean=round(mean, 5), scale=round(scale, 5), weight=round(weight, 4))
            for of, mean, scale, weight in zip(names, means.tolist(), scales.tolist(), found, strict=True)
        },
        number_missing=round((sum(without_number) + 1) / (len(without_number) + 2), 3),
        unsupported_below=UNSUPPORTED_BELOW,
        supported_from=SUPPORTED_FROM,
    )


def _fitted(inputs: Numbers, labels: Numbers, weights: Numbers) -> list[float]:
    """Return the coefficients of a logistic regression, by Newton's method."""
    found = np.zeros(inputs.shape[1])
    ridge = np.eye(len(found)) * _RIDGE
    ridge[0, 0] = 0.0
    for _ in range(_STEPS):
        said = 1 / (1 + np.exp(-inputs @ found))
        slope = inputs.T @ (weights * (said - labels)) + ridge @ found
        curve = (inputs.T * (weights * said * (1 - said))) @ inputs + ridge
        step = np.linalg.solve(curve, slope)
        found = found - step
        if np.abs(step).max() < 1e-10:
            break
    return [float(value) for value in found]


def out_of_fold(claims: Sequence[LabeledClaim]) -> list[float]:
    """Return the probability of each claim by a model that saw no claim about the same document."""
    folds = [fold_of(claim.document) for claim in claims]
    found = [0.0] * len(claims)
    for fold in range(_FOLDS):
        model = train([claim for claim, of in zip(claims, folds, strict=True) if of != fold])
        for at, (claim, of) in enumerate(zip(claims, folds, strict=True)):
            if of == fold:
                found[at] = model.support(claim.features)
    return found


def measured(
    claims: Sequence[LabeledClaim], support: Sequence[float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in dict.fromkeys(claim.file for claim in claims):
        rows = [
            (claim, p)
            for claim, p in zip(claims, support, strict=True)
            if claim.file == file and claim.is_statement
        ]
        flagged = [claim for claim, p in rows if p < UNSUPPORTED_BELOW]
        passed = [claim for claim, p in rows if p >= SUPPORTED_FROM and claim.may_be_supported]
        wrong = sum(not claim.supported for claim, _ in rows)
        caught = sum(not claim.supported for claim in flagged)
        yield (
            file,
            {
                "claims": len(rows),
                "unsupported": wrong,
                "decided": len(flagged) + len(passed),
                "flagged": len(flagged),
                "caught": caught,
                "passed": len(passed),
                "passed_rightly": sum(claim.supported for claim in passed),
            },
        )


def card(
    files: Sequence[str], claims: Sequence[LabeledClaim], measured_only: Sequence[str], *, name: str
) -> JudgeCard:
    """Return the judge's card: out of fold for the files it is trained on, and of other files as they are."""
    models = [train([claim for claim in claims if fold_of(claim.document) != fold]) for fold in range(_FOLDS)]
    answers = [answer for file in (*files, *measured_only) for answer in read_labeled(file) if answer.claims]
    population = Counter(map(stratum_of, answers))
    whole, found = train(claims, name=name), []
    names = {Path(file).name for file in files}
    for fold in (*range(_FOLDS), None):
        of_fold = [
            answer
            for answer in answers
            if (fold_of(_document(answer)) if answer.file in names else None) == fold
        ]
        judge = LexicalJudge(whole if fold is None else models[fold])
        found += asyncio.run(_measured(of_fold, judge, first=len(found)))
    results = summarize(
        found,
        _candidates(LexicalJudge()),
        MeasurementPlan(population=population, sampled=False),
        lambda *_: 0.0,
    )
    digests = {Path(file).name: digest_of(file) for file in (*files, *measured_only)}
    made = judge_card(results, LexicalJudge.identity, digests)
    sources = {
        **dict.fromkeys(names, "trained on this file; out of fold, to compare with the floor"),
        **{Path(file).name: "never trained on; to compare with the floor" for file in measured_only},
    }
    # What was measured outside this repository, held out and elsewhere, stands on the shipped card.
    shipped = JudgeCard.model_validate_json((SHIPPED.parent / "cards" / f"{whole.name}.json").read_text())
    outside = [of for of in shipped.sets if of.source.endswith("measured outside this repository")]
    held_out = [of for of in outside if of.source.startswith("held out")]
    elsewhere = [of for of in outside if of not in held_out]
    compared = [_compared(of, sources[of.name]) for of in made.sets]
    return made.model_copy(update={"sets": [*held_out, *compared, *elsewhere]})


def _compared(of: CardSet, source: str) -> CardSet:
    """Leave out what depends on the cuts: they were chosen on these files."""
    by_cut = ("decided", "precision", "recall", "recall_of_decided", "of_answers")
    return of.model_copy(update={"source": source, **dict.fromkeys(by_cut)})


def _candidates(judge: LexicalJudge) -> list[JudgeCandidate]:
    return [
        JudgeCandidate(judge=judge, form=VerifyForm.JSON),
        JudgeCandidate(judge=WordShareJudge(), form=VerifyForm.JSON, is_floor=True),
    ]


async def _measured(
    answers: Sequence[LabeledAnswer], judge: LexicalJudge, *, first: int
) -> list[MeasuredAnswer]:
    found: list[MeasuredAnswer] = []
    await measure_all(answers, _candidates(judge), concurrency=1, seed=0, done=found.append)
    return [replace(measured, position=first + measured.position) for measured in found]


def _document(answer: LabeledAnswer) -> str:
    return f"{answer.file}:{answer.document}"


def fold_of(document: str) -> int:
    return int(hashlib.sha256(document.encode()).hexdigest(), 16) % _FOLDS


def saved(model: SupportModel, files: Sequence[str], figures: Mapping[str, Any]) -> str:
    content = {
        "name": model.name,
        "what": "a logistic regression: P(the chunks support the claim)",
        "trained_on": TRAINED_ON,
        "digests": {
            Path(file).name: hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] for file in files
        },
        "out_of_fold": figures,
        "unsupported_below": model.unsupported_below,
        "supported_from": model.supported_from,
        "number_missing": model.number_missing,
        "bias": model.bias,
        "features": {
            name: {"mean": of.mean, "scale": of.scale, "weight": of.weight}
            for name, of in model.features.items()
        },
    }
    return json.dumps(content, indent=1) + "\n"


def main() -> None:
    """Train, say what was measured, and write the package's file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="labeled answers, as `ragtrace calibrate` reads them")
    parser.add_argument("--measure", action="append", default=[], help="measured too, never trained on")
    parser.add_argument("--name", default="lexical-v4", help="the name of the model on every score")
    parser.add_argument("--to", default=str(SHIPPED))
    given = parser.parse_args()
    claims = [claim for file in given.files for claim in read_claims(file)]
    figures = dict(measured(claims, out_of_fold(claims)))
    for file, of_file in figures.items():
        print(file, of_file)
    model = replace(train(claims), name=given.name)
    Path(given.to).write_text(saved(model, given.files, figures), encoding="utf-8")
    folder = Path(given.to).parent / "cards"
    folder.mkdir(exist_ok=True)
    card(given.files, claims, given.measure, name=given.name).write(folder / f"{given.name}.json")


if __name__ == "__main__":
    main()
