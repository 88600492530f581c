"""Follow-up sampling: answers related to a low one, by session, chunk or prompt version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ragtrace.model import Direction, Evaluation, MetricResult, RagRecord
from ragtrace.traces.attach import tenant_of

Relation = Literal["session", "chunks", "prompt_version"]

RULE_FOLLOW_UP: Final = "neighbour"
_MOST_CHUNKS: Final = 20
_MOST_LOW_ANSWERS: Final = 1_000
"""The limit of low answers with follow-ups; beyond it, the oldest is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpPolicy:
    """Which answers are low, which answers are related, and how many of them are kept."""

    below: float
    """A lower score is low. If lower is better for a metric, the distance from its good end counts."""
    metric: str | None = None
    """``None``: any metric."""
    relations: tuple[Relation, ...] = ("session", "chunks", "prompt_version")
    most: int = 20
    """For each low answer."""
    window_ns: int = 600 * 10**9

    def is_low(self, evaluation: Evaluation) -> bool:
        """Say whether one of the scores is low."""
        return any(self._is_low(result) for result in evaluation.results)

    def keys_of(self, record: RagRecord, tenant: str) -> tuple[str, ...]:
        """Return the keys that related answers of a tenant share with an answer: digests, no content."""
        of_token = tenant_of(record.target) if record.target else ""
        values: dict[Relation, Sequence[str | None]] = {
            "session": (record.session_id or record.conversation_id,),
            "chunks": tuple(dict.fromkeys(chunk.id for chunk in record.chunks))[:_MOST_CHUNKS],
            "prompt_version": (record.prompt_version,),
        }
        return tuple(
            _key(of_token, tenant, relation, value)
            for relation in self.relations
            for value in values[relation]
            if value
        )

    def low_answer(
        self, trace_id: str, span_id: str, record: RagRecord, now_ns: int, *, tenant: str
    ) -> LowAnswer:
        """Return the record of a low answer."""
        return LowAnswer(
            trace_id=trace_id,
            span_id=span_id,
            keys=self.keys_of(record, tenant),
            remaining=self.most,
            until_ns=now_ns + self.window_ns,
        )

    def _is_low(self, result: MetricResult) -> bool:
        if result.score is None or self.metric not in (None, result.metric):
            return False
        is_good_high = result.direction is Direction.HIGHER_IS_BETTER
        return (result.score if is_good_high else 1 - result.score) < self.below


def _key(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass(slots=True, kw_only=True)
class LowAnswer:
    """A low answer, and how many related answers may still be kept."""

    trace_id: str
    span_id: str
    keys: tuple[str, ...]
    remaining: int
    until_ns: int


class FollowUps:
    """The recent low answers. They are in memory for speed, and every change is stored."""

    def __init__(self, policy: FollowUpPolicy) -> None:
        self.policy = policy
        self._low: dict[tuple[str, str], LowAnswer] = {}
        self._by_key: dict[str, list[LowAnswer]] = {}

    def __contains__(self, answer: tuple[str, str]) -> bool:
        # exhausted ones included, so that judging them again does not start over
        return answer in self._low

    def add(self, low: LowAnswer) -> None:
        """Watch for related answers from now on."""
        self._low[low.trace_id, low.span_id] = low
        for key in low.keys:
            self._by_key.setdefault(key, []).append(low)
        while len(self._low) > _MOST_LOW_ANSWERS:
            self.forget(next(iter(self._low.values())))

    def find(self, keys: Iterable[str], now_ns: int) -> LowAnswer | None:
        """Return a low answer that has one of the keys and may keep one more related answer."""
        found = [low for key in keys for low in self._by_key.get(key, ())]
        for low in found:
            if now_ns < low.until_ns and low.remaining:
                return low
            self._look_no_more(low)
        return None

    def forget(self, low: LowAnswer) -> None:
        """Forget a low answer."""
        self._low.pop((low.trace_id, low.span_id), None)
        self._look_no_more(low)

    def _look_no_more(self, low: LowAnswer) -> None:
        for key in low.keys:
            left = [each for each in self._by_key.get(key, ()) if each is not low]
            if left:
                self._by_key[key] = left
            else:
                self._by_key.pop(key, None)
