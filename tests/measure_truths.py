"""Measures verdicts against truths: ``python -m tests.measure_truths qa.jsonl summary.jsonl``.

The judge without a key decides each claim twice: from the chunks, and from their facts, which are the chunk's
sentences, cut at a limit as a model's list would be. So what differs is what the reading drops, not how well
a model lists facts; that is to be measured with the model itself (``--judge``).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from ragtrace.judge import Script, ScriptedJudge, open_judge
from ragtrace.judge.layers import JudgeLayer
from ragtrace.judge_forms import TruthsInput
from ragtrace.labeled_data import LabeledAnswer, read_labeled
from ragtrace.metrics.registry import metric_named
from ragtrace.model import MetricResult, VerdictLabel
from ragtrace.pipeline import evaluate
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, ReplyT

LIMITS = (None, 20, 10, 5)


class _SentencesAsFacts(JudgeLayer):
    """Lists facts for a judge that cannot: a chunk's sentences."""

    _facts = ScriptedJudge(Script())

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        judge = self._facts if isinstance(request.inputs, TruthsInput) else self.inner
        return await judge.ask(request)


@dataclass(slots=True, kw_only=True)
class Compared:
    """Verdicts on the same claims, from the chunks and from their facts."""

    claims: int = 0
    same: int = 0
    lost: int = 0
    """Supported by the chunks, and not by the facts."""
    gained: int = 0
    """The other way round."""
    answers: int = 0
    failed: int = 0

    def count(self, whole: Sequence[VerdictLabel], facts: Sequence[VerdictLabel]) -> None:
        for before, after in zip(whole, facts, strict=True):
            self.claims += 1
            self.same += before is after
            self.lost += before is VerdictLabel.SUPPORTED is not after
            self.gained += after is VerdictLabel.SUPPORTED is not before


async def compared(judge: Judge, answers: Sequence[LabeledAnswer], limit: int | None) -> Compared:
    options = {"truths": True} if limit is None else {"truths": True, "truths_limit": limit}
    found = Compared()
    for answer in answers:
        whole = await evaluate(answer.record, metrics=["faithfulness"], judge=judge)
        facts = await evaluate(answer.record, metrics=[metric_named("faithfulness", **options)], judge=judge)
        found.answers += 1
        if len(whole.results) == len(facts.results) == 1:
            found.count(_labels(whole.results[0]), _labels(facts.results[0]))
        else:
            found.failed += 1
    return found


def _labels(result: MetricResult) -> list[VerdictLabel]:
    return [verdict.label for verdict in result.verdicts]


async def _lines(files: Sequence[str], spec: str) -> list[str]:
    lines = []
    async with aclosing(open_judge(spec)) as opened:
        judge = _SentencesAsFacts(opened) if opened.identity.computes else opened
        for file in files:
            answers = list(read_labeled(file))
            for limit in LIMITS:
                found = await compared(judge, answers, limit)
                lines.append(
                    f"{file.rpartition('/')[2]}, {f'limit {limit}' if limit else 'no limit'}:"
                    f" {found.same} of {found.claims} verdicts are the same,"
                    f" {found.lost} no longer supported, {found.gained} supported now;"
                    f" {found.failed} of {found.answers} answers failed"
                )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="labeled answers, as `ragtrace calibrate` reads them")
    parser.add_argument("--judge", default="lexical")
    arguments = parser.parse_args()
    print("\n".join(asyncio.run(_lines(arguments.files, arguments.judge))))
