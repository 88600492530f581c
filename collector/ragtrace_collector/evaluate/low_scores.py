"""Follow-up sampling: after a low score, related answers are judged, both skipped and future ones."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.model import Evaluation, RagRecord
from ragtrace_collector.sampling import RULE_FOLLOW_UP, FollowUps, LowAnswer, Sampler
from ragtrace_collector.store.records import Job, RelatedAnswer, StoreUnavailable
from ragtrace_collector.store.sampling import SamplingState
from ragtrace_collector.telemetry.counters import Counters, Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class LowScoreWatch:
    """Checks each evaluation before its answer is ended, so that a crash loses no low score."""

    sampling_store: SamplingState
    counters: Counters

    async def note(
        self, job: Job, record: RagRecord, evaluation: Evaluation, *, sampler: Sampler, now_ns: int
    ) -> None:
        """Queue related answers of a low one that were sampled out, and keep watching for new ones.

        A related answer that is low itself triggers nothing: one bad prompt must not have everything judged.

        Raises:
            StoreUnavailable: the change cannot be stored; try again.
        """
        follow_ups = sampler.follow_ups
        if follow_ups is None or not _sets_off(follow_ups, job, evaluation):
            return
        low = follow_ups.policy.low_answer(job.trace_id, job.span_id, record, now_ns, tenant=job.tenant)
        follow_ups.add(low)  # before the first await, so that answers from now on see it
        try:
            self.counters.add(
                Counts.ANSWERS_BROUGHT_BACK, await self._select_follow_ups(low, sampler, now_ns)
            )
        except StoreUnavailable:
            follow_ups.forget(low)
            raise

    async def _select_follow_ups(self, low: LowAnswer, sampler: Sampler, now_ns: int) -> int:
        found = await self.sampling_store.candidates(low.keys, limit=low.remaining)
        jobs = [
            _job(answer, low, sampler)
            for answer in found
            if low.remaining > 0 and sampler.takes_place(answer.tenant, answer.span_id, now_ns)
        ]
        refused = await self.sampling_store.save(sampler.take_changes())
        sampler.give_back(refused)
        jobs = [job for job in jobs if all(job.span_id != place.span_id for place in refused)]
        return await self.sampling_store.select_related(low, jobs, now_ns=now_ns)


def _job(answer: RelatedAnswer, low: LowAnswer, sampler: Sampler) -> Job:
    low.remaining -= 1
    return Job(
        trace_id=answer.trace_id,
        span_id=answer.span_id,
        sample=sampler.follow_up_sample,
        tenant=answer.tenant,
    )


def _sets_off(follow_ups: FollowUps, job: Job, evaluation: Evaluation) -> bool:
    is_new = job.sample.rule != RULE_FOLLOW_UP and (job.trace_id, job.span_id) not in follow_ups
    return is_new and follow_ups.policy.is_low(evaluation)
