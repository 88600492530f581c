"""When an evaluation gets a carrier, and which earlier carrier that supersedes."""

from __future__ import annotations

from collections.abc import Iterable

from ragtrace import semconv
from ragtrace.model import Evaluation, RagRecord, Sample
from ragtrace.traces.attach import AttachOptions, Mode, carrier, deserves_carrier
from ragtrace.traces.trace import Span


def attach(
    evaluation: Evaluation,
    record: RagRecord,
    *,
    sample: Sample,
    options: AttachOptions,
    now_ns: int,
    mode: Mode = "append",
    replaces: str | None = None,
    earlier: Iterable[Span] = (),
    is_revision: bool = False,
    cost_usd: float | None = None,
) -> Span | None:
    """Return the carrier of an evaluation, or ``None`` if it gets none.

    An answer without a retrieval gets none, unless the application marks it as that of a RAG call, or in
    place of another carrier: without a new one, an earlier verdict would stay valid.

    Args:
        evaluation: The verdicts.
        record: What was judged.
        sample: How the record was chosen.
        options: The content and the time of the carrier.
        now_ns: Unix time in nanoseconds.
        mode: Who attaches it.
        replaces: Span id of the carrier that this one supersedes, if the work store knows it.
        earlier: Carriers of the same answer by other evaluators; the last one with the same metrics is
            superseded.
        is_revision: The superseded carrier has the same target and evaluator, but another record.
        cost_usd: What the judge's tokens cost in US dollars, if that is known.

    Raises:
        InputError: the record does not come from a trace.
    """
    if not (deserves_carrier(evaluation) or record.is_marked or replaces):
        return None

    def make(supersedes: str | None) -> Span:
        return carrier(
            evaluation,
            record,
            sample=sample,
            mode=mode,
            options=options,
            now_ns=now_ns,
            supersedes=supersedes,
            is_revision=is_revision,
            cost_usd=cost_usd,
        )

    span = make(replaces)
    superseded = None if replaces else superseded_by(span, earlier)
    return make(superseded) if superseded else span


def superseded_by(span: Span, earlier: Iterable[Span]) -> str | None:
    """Return the id of the carrier that this one supersedes: the last one with the same metrics."""
    rivals = [rival for rival in earlier if metrics_on(rival) == metrics_on(span)]
    replaced = {rival.attributes.get(semconv.EVAL_SUPERSEDES) for rival in rivals}
    latest = [rival for rival in rivals if rival.span_id not in replaced]
    last = max(latest, key=lambda rival: str(rival.attributes.get(semconv.EVAL_STARTED_AT)), default=None)
    return last.span_id if last else None


def metrics_on(span: Span) -> frozenset[str]:
    """Return the attribute keys of the labels that a carrier has, one for each metric and profile."""
    return frozenset(key for key in span.attributes if key.startswith(semconv.LABEL_PREFIX))
