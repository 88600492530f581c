"""``ragtrace why``: why an answer has a score, or has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.options import JsonOption, command, takes
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json, rough_duration
from ragtrace_collector.cli.places import LedgerOptions

if TYPE_CHECKING:
    from ragtrace.answers.summary import AnswerSummary
    from ragtrace_collector.ledger import AnswerStatus
    from ragtrace_collector.operations.why import EvaluationStatus, OpenSpans, TraceState, TraceStatus


_MOST_PARENTS: Final = 5
_MOST_CLAIMS: Final = 20


@command()
@click.argument("trace", metavar="TRACE_ID")
@takes(place=LedgerOptions, output=JsonOption)
def why(trace: str, place: LedgerOptions, output: JsonOption) -> None:
    """Say why the answers of a trace have scores, or have none.

    TRACE_ID may be a prefix, or a traceparent. The collector may run meanwhile. Wrong claims have their texts
    if the store keeps them, but not with --url. Exit code 1 if the trace is unknown.

    \b
    Examples:
      ragtrace why 5b8efff798038103d269b633813fc60c
      ragtrace why 5b8efff7 --config collector.yaml
      ragtrace why 5b8efff7 --config collector.yaml --json | jq '.answers[].state'
      ragtrace why 5b8efff7 --url http://127.0.0.1:4329
    """
    from ragtrace_collector.operations.pages import trace_status_form

    standing = place.standing(trace)
    if output.wanted:
        form = trace_status_form.dump_python(standing, mode="json")
        print_json({**form, "why": list(_lines(standing))})
    else:
        console = open_console()
        console.print(_title(standing), style="bold", soft_wrap=True)
        for line in _lines(standing):
            text = line.lstrip()
            print_indented(console, 2 + len(line) - len(text), text)
    is_known = standing.trace is not None or standing.answers
    click.get_current_context().exit(0 if is_known else 1)


def _title(standing: TraceStatus) -> str:
    if not standing.answers and standing.trace is None:
        return f"trace {standing.trace_id}: the collector does not know it"
    return f"trace {standing.trace_id}: {many(len(standing.answers), 'answer')} found"


def _lines(standing: TraceStatus) -> Iterator[str]:
    """Yield what to tell, indented below what it is about."""
    for answer in standing.answers:
        yield from _about_answer(answer, standing.now_ns)
        of_answer = [one for one in standing.evaluations if one.summary.key.span_id == answer.span_id]
        yield from _about_evaluations(of_answer)
    if standing.content_fault:
        yield f"the texts of its claims cannot be shown: {one_line(standing.content_fault)}"
    if standing.trace is not None:
        yield from _about_trace(standing.trace, standing)
    elif standing.answers:
        yield "its spans were deleted (`assemble.linger`); this information is kept for `store.retention`"
    else:
        yield from _possibilities(standing)


def _about_answer(answer: AnswerStatus, now_ns: int) -> Iterator[str]:
    from ragtrace_collector.ledger import State, meaning_of

    reason = f", {one_line(answer.reason)}" if answer.reason else ""
    owner = ", ".join(
        f"{name} {one_line(value)}"
        for name, value in (("service", answer.service), ("tenant", answer.tenant))
        if value
    )
    yield f"answer span {answer.span_id}{f' ({owner})' if owner else ''}: {answer.state}{reason}"
    meaning = meaning_of(answer.state, answer.reason)
    yield f"  {meaning.meaning}{f' -> {meaning.advice}' if meaning.advice != 'nothing' else ''}"
    if answer.rule:
        chosen = "left out" if answer.state in (State.SAMPLED_OUT, State.FILTERED, State.SHED) else "chosen"
        yield f"  {chosen} by rule {one_line(answer.rule)}: {_odds(answer)}"
    yield f"  {_history(answer, now_ns)}"
    if answer.is_on_span:
        yield "  its scores are on the answer span itself, which was held back for them"
    if answer.carrier and (answer.deliveries or not answer.is_on_span):
        yield f"  carrier {answer.carrier}, evaluator {one_line(answer.evaluator)}"
    for delivery in answer.deliveries:
        refusal = f": {one_line(delivery.reason)}" if delivery.reason else ""
        yield f"  to {one_line(delivery.sink)}: {delivery.state}{refusal}"


def _about_evaluations(evaluations: Sequence[EvaluationStatus]) -> Iterator[str]:
    """Yield the scores and wrong claims, then where evaluations say the opposite."""
    replaced = {one.summary.supersedes for one in evaluations}
    for one in evaluations:
        if one.summary.carrier_span_id not in replaced:
            yield from _about_scores(one)
    beside = [one.summary for one in evaluations if one.summary.is_disputed]
    if beside:
        said = ", ".join(f"{_judge(one)} says {one.label}" for one in beside)
        passed = sum(one.label == "pass" for one in beside)
        yield f"  disputed: {passed} of {many(len(beside), 'valid evaluation')} pass it ({said})"
    for one in evaluations:
        unscored = [one_line(metric.name) for metric in one.summary.metrics if metric.label == "error"]
        if unscored:
            yield f"  evaluation {one.summary.carrier_span_id} has no score of {', '.join(unscored)}"


def _about_scores(evaluation: EvaluationStatus) -> Iterator[str]:
    summary = evaluation.summary
    scores = ", ".join(
        f"{one_line(metric.name)}{'' if metric.score is None else f' {metric.score:.2f}'} {metric.label}"
        for metric in summary.metrics
    )
    claims = summary.claims
    wrong = claims.contradicted + claims.unsupported
    counted = f"; {wrong} of {many(claims.total, 'claim')} wrong" if claims.total else ""
    yield f"  {_judge(summary)}: {scores or summary.label}{counted}"
    for verdict in evaluation.wrong[:_MOST_CLAIMS]:
        text = verdict.claim.text
        said = f"“{one_line(text)}”" if text else "a claim whose words are not on the carrier"
        chunk = f"; {one_line(verdict.chunk_ids[0])}" if verdict.chunk_ids else ""
        quote = f" says “{one_line(verdict.quote)}”" if chunk and verdict.quote else ""
        yield f"    {verdict.label}: {said}{chunk}{quote}"
    if len(evaluation.wrong) > _MOST_CLAIMS:
        yield f"    and {len(evaluation.wrong) - _MOST_CLAIMS} more"


def _judge(summary: AnswerSummary) -> str:
    return one_line(summary.judge) or "a judge without a name"


def _odds(answer: AnswerStatus) -> str:
    screened = "" if answer.suspicion is None else f"suspicion {answer.suspicion:.3g}, "
    if answer.probability is None:
        return f"{screened}rate {answer.rate:.3g}, no known probability"
    return f"{screened}rate {answer.rate:.3g}, probability {answer.probability:.3g}"


def _history(answer: AnswerStatus, now_ns: int) -> str:
    parts = [f"seen {_when(answer.seen_ns, now_ns)}"]
    if answer.attempts:
        last = f", the last by {one_line(answer.last_error)}" if answer.last_error else ""
        parts.append(f"{many(answer.attempts, 'attempt')} failed{last}")
    if answer.ended_ns is not None:
        parts.append(f"ended {_when(answer.ended_ns, now_ns)}")
    elif answer.due_ns > now_ns:
        parts.append(f"tried next {_when(answer.due_ns, now_ns)}")
    elif answer.state != "leased":
        parts.append("due now")
    return "; ".join(parts)


def _about_trace(trace: TraceState, standing: TraceStatus) -> Iterator[str]:
    now_ns = standing.now_ns
    if trace.is_open:
        yield f"it is open: the last span came {_when(trace.last_arrival_ns, now_ns)}"
        if trace.open_spans is None:
            yield "  its spans are encrypted: --config names the file that has the key"
        else:
            yield f"  {_waits_for(trace.open_spans)}"
        if trace.ready_ns is not None:
            ready = _when(trace.ready_ns, now_ns) if trace.ready_ns > now_ns else "now"
            yield f"  if nothing more comes, it is processed {ready}"
    elif trace.decided_ns is not None and not trace.poison:
        yield f"its spans were processed {_when(trace.decided_ns, now_ns)}; late spans can still join"
        if not standing.answers:
            yield "  they contain no RAG answer -> `ragtrace explain --from store:PATH` shows what was read"
    if trace.poison:
        took = "assembling and reading it took more CPU time than `assemble.max_cpu`"
        why = took if trace.poison == "cpu" else "the process ended each time it processed the trace"
        advice = "check its spans with `ragtrace explain`, the memory limit, and your own patterns"
        yield f"it was quarantined as poison: {why} -> {advice}"
    elif trace.crashes:
        crashes = many(trace.crashes, "time")
        yield f"the process ended while it processed the trace, {crashes}: the trace is now processed alone"
    if trace.is_cut:
        yield "not all its spans were kept -> raise `assemble.max_spans_per_trace`"
    if trace.held_since_ns is not None:
        yield f"its spans wait for their scores, held since {_when(trace.held_since_ns, now_ns)}"


def _waits_for(spans: OpenSpans) -> str:
    missing = [*([] if spans.has_root else ["its root"])]
    if spans.missing_parents:
        shown = ", ".join(spans.missing_parents[:_MOST_PARENTS])
        more = ", …" if len(spans.missing_parents) > _MOST_PARENTS else ""
        missing.append(f"{many(len(spans.missing_parents), 'parent')} that spans name ({shown}{more})")
    came = f"{many(spans.spans, 'span')} came"
    if not missing:
        return f"{came}; it is complete, and waits only for the quiet period"
    return f"{came}; it waits for {' and '.join(missing)}"


def _possibilities(standing: TraceStatus) -> Iterator[str]:
    """Yield what may be the case, the decided first."""
    head_sampling = standing.head_sampling
    if head_sampling is None:
        yield "excluded by sampling? --config or --url computes that from the trace id"
    elif not head_sampling.is_kept:
        yield (
            f"head sampling excludes it (at {head_sampling.position:.4f} is above every rate): if it came"
            ", its spans were counted but not processed -> raise `sample.ratio` to judge more"
        )
        return
    else:
        yield f"head sampling keeps it (position {head_sampling.position:.4f})"
    yield "it never arrived? -> check the application's exporter, and `spans_received` on the status page"
    yield (
        "it arrived and was deleted? spans are kept for `assemble.linger` after they were processed,"
        " outcomes for `store.retention`"
    )


def _when(moment_ns: int, now_ns: int) -> str:
    seconds = (moment_ns - now_ns) / 1e9
    at = datetime.fromtimestamp(moment_ns // 10**9, UTC)
    clock = f"{at:%H:%M:%S} UTC" if abs(seconds) < 86_400 else f"{at:%Y-%m-%d %H:%M} UTC"
    return f"in {_span(seconds)} ({clock})" if seconds > 0 else f"{_span(-seconds)} ago ({clock})"


def _span(seconds: float) -> str:
    return rough_duration(round(seconds))
