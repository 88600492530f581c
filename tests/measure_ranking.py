"""Compares rankings of answers in pairs: ``python -m tests.measure_ranking qa.jsonl summary.jsonl``.

How well lexical-v3 (one minus the suspicion, out of fold by source document) puts good answers above flawed
ones, beside the former judge and beside the share of an answer's words in the chunks. Differences are of the
same answers, drawn by document. The scores are those of ``tests/statistics/ragtruth_scores.csv``; the
files tell which answers share a document.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial

from ragtrace.calibration.agreement import Numbers, Ranking, Resampling, ScoredAnswer, Weights
from ragtrace.calibration.page import signed
from ragtrace.labeled_data import LabeledAnswer, read_labeled
from tests.statistics.labeled import SETS, rows

__all__ = ["compared"]

RANKER = "unsuspicious"
OTHERS = {"lexical_score": "the former judge, lexical-v2", "coverage": "the share of words"}


def compared(name: str, answers: list[LabeledAnswer]) -> Iterator[str]:
    """Yield each ranking's AUC, and the ranker's lead.

    Raises:
        ValueError: the file is not the one that the scores were computed from.
    """
    scores = rows(name)
    if [row["human_pass"] == "1" for row in scores] != [answer.supported for answer in answers]:
        raise ValueError(f"the scores of {name!r} are of another file")
    resampling = Resampling(
        [1.0] * len(answers), [""] * len(answers), [answer.document for answer in answers]
    )
    ranker = _ranking(scores, RANKER)
    yield f"{name}: {len(answers)} answers, AUC {ranker.auc(resampling.weights)[0]:.2f}"
    for column, what in OTHERS.items():
        other = _ranking(scores, column)
        lead = resampling.estimate(partial(_lead, ranker, other))
        assert lead is not None
        yield f"  {what}: AUC {other.auc(resampling.weights)[0]:.2f}, difference {signed(lead)}"


def _lead(ranker: Ranking, other: Ranking, weights: Weights) -> Numbers:
    return ranker.auc(weights) - other.auc(weights)


def _ranking(scores: tuple[Mapping[str, str], ...], column: str) -> Ranking:
    known = [float(row[column]) for row in scores if row[column]]
    undecided = sum(known) / len(known)
    return Ranking(
        ScoredAnswer(float(row[column] or undecided), row["human_pass"] == "1", number)
        for number, row in enumerate(scores)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2, help="RAGTruth's development files: questions, then summaries")
    for name, file in zip(SETS, parser.parse_args().files, strict=True):
        print("\n".join(compared(name, list(read_labeled(file)))))
