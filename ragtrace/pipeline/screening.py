"""Screening: what the judge without a key says of an answer before anyone else is asked."""

from __future__ import annotations

from typing import Final

from ragtrace.judge.lexical import LexicalJudge
from ragtrace.metrics.faithfulness import Faithfulness
from ragtrace.model import RagRecord
from ragtrace.pipeline.evaluation import evaluate

_SCREEN: Final = LexicalJudge()
_METRIC: Final = Faithfulness()


async def suspicion_of(record: RagRecord) -> float | None:
    """Return how likely an unsupported claim is in the answer, from 0 to 1: it ranks answers.

    It is what ``lexical`` writes as ``ragtrace.suspicion``. ``None`` if there is nothing to judge: no answer,
    no context, no claim.
    """
    return (await evaluate(record, metrics=(_METRIC,), judge=_SCREEN)).suspicion
