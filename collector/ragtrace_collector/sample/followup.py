"""What a low score sets off: its neighbours are judged, those that were left out and those still to come."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.model import Evaluation, RagRecord
from ragtrace_collector.sampling import RULE_FOLLOW_UP, FollowUps, LowAnswer, Sampler
from ragtrace_collector.store.port import Job, StoreUnavailable
from ragtrace_collector.store.sampling import RelatedAnswer, SamplingStore
from ragtrace_collector.telemetry.counters import Counters, Counts

__all__ = ["LowScoreWatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowScoreWatch:
    """Looks at each evaluation before its answer is ended, so that a crash forgets no low score."""

    sampler: Sampler
    book: SamplingStore
    counters: Counters

    async def note(self, job: Job, record: RagRecord, evaluation: Evaluation, *, now_ns: int) -> None:
        """Bring back neighbours of a low answer that were sampled out, and look out for others.

        A neighbour that is low itself sets off nothing: one bad prompt must not have everything judged.

        Raises:
            StoreUnavailable: it cannot be kept; try again.
        """
        neighbours = self.sampler.neighbours
        if neighbours is None or not _sets_off(neighbours, job, evaluation):
            return
        low = neighbours.policy.low_answer(job.trace_id, job.span_id, record, now_ns)
        neighbours.add(low)  # before the first wait: who comes from now on finds it
        try:
            self.counters.add(Counts.ANSWERS_BROUGHT_BACK, await self._bring_back(low, now_ns))
        except StoreUnavailable:
            neighbours.forget(low)
            raise

    async def _bring_back(self, low: LowAnswer, now_ns: int) -> int:
        found = await self.book.candidates(low.keys, limit=low.remaining)
        jobs = [self._job(each, low) for each in found if self._has_place(each, low, now_ns)]
        await self.book.save(self.sampler.take_changes())
        return await self.book.bring_back_near(low, jobs, now_ns=now_ns)

    def _has_place(self, candidate: RelatedAnswer, low: LowAnswer, now_ns: int) -> bool:
        return low.remaining > 0 and self.sampler.takes_place(candidate.tenant, now_ns)

    def _job(self, candidate: RelatedAnswer, low: LowAnswer) -> Job:
        low.remaining -= 1
        return Job(
            trace_id=candidate.trace_id,
            span_id=candidate.span_id,
            sample=self.sampler.neighbour_sample,
            tenant=candidate.tenant,
        )


def _sets_off(neighbours: FollowUps, job: Job, evaluation: Evaluation) -> bool:
    is_new = job.sample.rule != RULE_FOLLOW_UP and (job.trace_id, job.span_id) not in neighbours
    return is_new and neighbours.policy.is_low(evaluation)
