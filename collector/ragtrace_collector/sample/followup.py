"""Follow-up sampling: after a low score, related answers are judged, both skipped and future ones."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.model import Evaluation, RagRecord
from ragtrace_collector.sampling import RULE_FOLLOW_UP, FollowUps, LowAnswer, Sampler
from ragtrace_collector.store.port import Job, StoreUnavailable
from ragtrace_collector.store.sampling import RelatedAnswer, SamplingStore
from ragtrace_collector.telemetry.counters import Counters, Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class LowScoreWatch:
    """Checks each evaluation before its answer is ended, so that a crash loses no low score."""

    sampler: Sampler
    sampling_store: SamplingStore
    counters: Counters

    async def note(self, job: Job, record: RagRecord, evaluation: Evaluation, *, now_ns: int) -> None:
        """Queue related answers of a low one that were sampled out, and keep watching for new ones.

        A related answer that is low itself triggers nothing: one bad prompt must not have everything judged.

        Raises:
            StoreUnavailable: the change cannot be stored; try again.
        """
        follow_ups = self.sampler.follow_ups
        if follow_ups is None or not _sets_off(follow_ups, job, evaluation):
            return
        low = follow_ups.policy.low_answer(job.trace_id, job.span_id, record, now_ns)
        follow_ups.add(low)  # before the first await, so that answers from now on see it
        try:
            self.counters.add(Counts.ANSWERS_BROUGHT_BACK, await self._select_follow_ups(low, now_ns))
        except StoreUnavailable:
            follow_ups.forget(low)
            raise

    async def _select_follow_ups(self, low: LowAnswer, now_ns: int) -> int:
        found = await self.sampling_store.candidates(low.keys, limit=low.remaining)
        jobs = [self._job(each, low) for each in found if self._has_place(each, low, now_ns)]
        await self.sampling_store.save(self.sampler.take_changes())
        return await self.sampling_store.select_related(low, jobs, now_ns=now_ns)

    def _has_place(self, candidate: RelatedAnswer, low: LowAnswer, now_ns: int) -> bool:
        return low.remaining > 0 and self.sampler.takes_place(candidate.tenant, now_ns)

    def _job(self, candidate: RelatedAnswer, low: LowAnswer) -> Job:
        low.remaining -= 1
        return Job(
            trace_id=candidate.trace_id,
            span_id=candidate.span_id,
            sample=self.sampler.follow_up_sample,
            tenant=candidate.tenant,
        )


def _sets_off(follow_ups: FollowUps, job: Job, evaluation: Evaluation) -> bool:
    is_new = job.sample.rule != RULE_FOLLOW_UP and (job.trace_id, job.span_id) not in follow_ups
    return is_new and follow_ups.policy.is_low(evaluation)
