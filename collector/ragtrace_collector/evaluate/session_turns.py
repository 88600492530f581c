"""An answer in its session: earlier turns as material, itself as a turn, and what its low score sets off."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace import semconv
from ragtrace.conversations import (
    placed_turn,
    session_of,
    turn_of_json,
    wants_earlier_turns,
    with_earlier_turns,
)
from ragtrace.model import Evaluation, RagRecord
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.sampling import RULE_FOLLOW_UP, FollowUps, LowAnswer, Sampler
from ragtrace_collector.store.records import Job, KeptTurn, RelatedAnswer, StoreUnavailable
from ragtrace_collector.store.sampling import SamplingState
from ragtrace_collector.store.sessions import SessionTurns
from ragtrace_collector.store.trace_key import tenant_of
from ragtrace_collector.telemetry.counters import Counters, Counts


async def in_its_session(
    record: RagRecord, job: Job, config: CollectorConfig, store: SessionTurns
) -> RagRecord:
    """Return the record with the turns before it that the store knows, if `sessions.context_turns` asks so.

    Raises:
        StoreUnavailable: they could not be read.
    """
    settings = config.sessions.opened(tenant=config.sample.tenant)
    name = session_of(record, tenant=_tenant_of(job))
    if name is None or record.target is None or not wants_earlier_turns(record, settings):
        return record
    found = await store.before(
        name,
        start_ns=record.target.start_ns,
        trace_id=record.target.trace_id,
        span_id=record.target.span_id,
        limit=settings.context_turns,
    )
    return with_earlier_turns(record, map(turn_of_json, found), settings)


def kept_turn(job: Job, record: RagRecord, evaluation: Evaluation, carrier: Span) -> KeptTurn | None:
    """Return what to keep of an evaluated answer; ``None`` if it has no session or no answer."""
    placed = placed_turn(record, evaluation, carrier, tenant=_tenant_of(job))
    if placed is None:
        return None
    supersedes = carrier.attributes.get(semconv.EVAL_SUPERSEDES)
    turn = placed.turn
    return KeptTurn(
        name=placed.name,
        trace_id=turn.trace_id,
        span_id=turn.span_id,
        start_ns=turn.start_ns,
        carrier_span_id=turn.carrier_span_id,
        supersedes=supersedes if isinstance(supersedes, str) else "",
        turn=turn.to_json(),
        place=encode([placed.place]),
    )


def _tenant_of(job: Job) -> str:
    return tenant_of(job.trace_id) or job.tenant


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
