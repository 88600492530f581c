"""The states and reasons of the ledger, with a description and advice for each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """The state of one answer: pending, or exactly one of the final states."""

    QUEUED = "queued"
    LEASED = "leased"
    POSTPONED = "postponed"

    JUDGED = "judged"
    SAMPLED_OUT = "sampled_out"
    FILTERED = "filtered"
    INELIGIBLE = "ineligible"
    OVER_BUDGET = "over_budget"
    SHED = "shed"
    FAILED = "failed"
    EXPIRED = "expired"

    SUPERSEDED = "superseded"
    """Late spans moved the answer to another span, which is counted instead."""

    def because(self, reason: str) -> str:
        """Return an outcome: the state and the reason. A reason is a class of causes, never a message."""
        return f"{self}:{reason}"


PARTLY: Final = State.JUDGED.because("partly")
"""The reason is a flag: at least one metric has a score, and at least one failed."""
POISON: Final = State.FAILED.because("poison")
MOST_CRASHES: Final = 3
"""An answer or a trace that so many processes crashed at is set aside."""
PENDING: Final = (State.QUEUED, State.LEASED, State.POSTPONED)
TERMINAL: Final = (
    State.JUDGED,
    State.SAMPLED_OUT,
    State.FILTERED,
    State.INELIGIBLE,
    State.OVER_BUDGET,
    State.SHED,
    State.FAILED,
    State.EXPIRED,
)


class FinalOutcome(NamedTuple):
    """How an answer ended, parsed from an outcome such as ``failed:judge_timeout``."""

    state: State
    reason: str = ""

    @classmethod
    def of(cls, outcome: str) -> FinalOutcome:
        """Parse an outcome.

        Raises:
            ValueError: it names no final state.
        """
        state, _, reason = outcome.partition(":")
        if state not in (*TERMINAL, State.SUPERSEDED):
            raise ValueError(f"{state!r} is not a final state (see `ragtrace_collector.ledger.outcomes`)")
        return cls(State(state), reason)

    def __str__(self) -> str:
        return self.state.because(self.reason) if self.reason else str(self.state)


class OutcomeDescription(NamedTuple):
    """What a state or reason means, and what to do about it."""

    meaning: str
    advice: str = "nothing"


def meaning_of(state: str, reason: str = "") -> OutcomeDescription:
    """Return the description of a reason, or else of its state."""
    return _MEANINGS.get(f"{state}:{reason}") or _MEANINGS[state]


def vocabulary() -> Mapping[str, OutcomeDescription]:
    """Return every state, and every described reason as ``state:reason``, in order."""
    return dict(_MEANINGS)


_CAPTURE: Final = "docs/instrument.md says what to switch on; `ragtrace explain` shows what was read"
_JUDGE: Final = "run `ragtrace doctor --config FILE`; then judge the gap again with `ragtrace backfill`"

_MEANINGS: Final[Mapping[str, OutcomeDescription]] = {
    "queued": OutcomeDescription(
        "it waits for a free worker", "if the number grows: raise `judge.max_concurrency`"
    ),
    "leased": OutcomeDescription("it is being judged now"),
    "postponed": OutcomeDescription("an attempt failed; it is retried when due", "look at the reason"),
    "postponed:judge_unavailable": OutcomeDescription(
        "the judge could not be reached, or was overloaded", "look at the judge's own health and limits"
    ),
    "postponed:judge_timeout": OutcomeDescription(
        "the judge did not answer in time", "raise `judge.timeout`"
    ),
    "postponed:judge_refused": OutcomeDescription(
        "key, quota, model or permission: you must fix it", "run `ragtrace doctor --config FILE`"
    ),
    "postponed:evaluation_timeout": OutcomeDescription(
        "an attempt took longer than ten times `judge.timeout`", "raise it, or choose a faster judge"
    ),
    "postponed:over_budget": OutcomeDescription(
        "the budget is spent until its next window", "raise the budget, or lower `sample.ratio`"
    ),
    "judged": OutcomeDescription("its scores are in the trace, or on their way"),
    "judged:partly": OutcomeDescription(
        "a metric failed on it for good; the others have their scores",
        f"`ragtrace why` names the metric, and the log has the reason; {_JUDGE}",
    ),
    "sampled_out": OutcomeDescription(
        "no rule chose it", "if too few are judged: raise `sample.ratio`, or add a rule"
    ),
    "filtered": OutcomeDescription("a `drop` rule of `sample.rules` excludes it"),
    "filtered:evaluation": OutcomeDescription("it belongs to an evaluator: evaluations are never evaluated"),
    "ineligible": OutcomeDescription("there was nothing to judge"),
    "ineligible:no_content": OutcomeDescription("the instrumentation did not record the text", _CAPTURE),
    "ineligible:no_retrieval": OutcomeDescription(
        "no retrieval was recorded for it, and its prompt has no marked passages",
        "if it is a RAG call: record its chunks with `@ragtrace.retrieval`; or if the prompt holds them: set "
        "`extract.context: prompt`",
    ),
    "ineligible:empty_retrieval": OutcomeDescription(
        "the retrieval found nothing",
        "if there are many: check the retriever, because the application answers without a source",
    ),
    "ineligible:redacted": OutcomeDescription(
        "the text was replaced by a redaction mark", "see docs/privacy.md"
    ),
    "ineligible:truncated": OutcomeDescription(
        "the text was truncated on its way", "raise the SDK's OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
    ),
    "ineligible:incomplete": OutcomeDescription(
        "its reader left, an error ended it, or attributes or spans were dropped",
        "`ragtrace explain` and the page say which; of dropped ones, check limits and samplers on the way",
    ),
    "ineligible:failed_call": OutcomeDescription("the RAG call ended in an error and has no answer"),
    "ineligible:refusal": OutcomeDescription("the answer declines to answer"),
    "ineligible:no_claims": OutcomeDescription("the answer makes no claim that can be checked"),
    "ineligible:all_unjudged": OutcomeDescription(
        "the judge decided nothing", "a judge that is a model decides more"
    ),
    "ineligible:undecided": OutcomeDescription(
        "too few claims were decided to tell pass from fail",
        "a judge that is a model decides more; `evaluate.metrics[].pass_when` says how many it takes",
    ),
    "ineligible:no_reference": OutcomeDescription(
        "the metric needs a reference answer", "give one, or drop the metric"
    ),
    "ineligible:missing_part": OutcomeDescription("a metric that this one combines has no score"),
    "ineligible:out_of_range": OutcomeDescription(
        "the tool whose rule is configured gives a number outside [0, 1]"
    ),
    "ineligible:peer_nan": OutcomeDescription("the tool whose rule is configured gives no number here"),
    "over_budget": OutcomeDescription(
        "the budget was spent",
        "raise the budget or lower `sample.ratio`; `ragtrace backfill` judges it later",
    ),
    "shed": OutcomeDescription(
        "there were more answers than could be judged", "raise `judge.max_concurrency` or lower the rate"
    ),
    "shed:rate_limit": OutcomeDescription(
        "there were more than `sample.limit` in a minute before the rates were lowered",
        "if there are many: raise the limit, or lower `sample.ratio`",
    ),
    "failed": OutcomeDescription("every attempt failed; it has no score", "the log has the reason"),
    "failed:judge_unavailable": OutcomeDescription(
        "the judge stayed unavailable for all `evaluate.retry_delays`", _JUDGE
    ),
    "failed:judge_timeout": OutcomeDescription(
        "the judge never answered in time", f"raise `judge.timeout`; {_JUDGE}"
    ),
    "failed:judge_refused": OutcomeDescription("key, quota, model or permission", _JUDGE),
    "failed:judge_unable": OutcomeDescription(
        "the judge lacks what the request needs, such as log-probabilities", "set `judge.verify: json`"
    ),
    "failed:judge_compromised": OutcomeDescription(
        "the judge got a canary claim wrong, or left it out: none of its verdicts on this record count",
        "set `judge.second`",
    ),
    "failed:judge_declined": OutcomeDescription(
        "the model, or its provider's content filter, refused to judge this answer",
        "set `judge.second`, or choose another model",
    ),
    "failed:context_cut": OutcomeDescription(
        "the judge's server cut the prompt: the judge saw less than was sent",
        "serve the model with a larger context (Ollama: `num_ctx`)",
    ),
    "failed:judge_nonsense": OutcomeDescription(
        "the judge answered, but not in the form asked for",
        "choose another model; `ragtrace calibrate` tells",
    ),
    "failed:judge_cut_off": OutcomeDescription(
        "the judge's reply ended at its token limit", "raise the limit of the model or gateway"
    ),
    "failed:judge_oversized": OutcomeDescription(
        "the judge's reply is longer than the limit (4 MiB, decompressed)",
        "check which server is at the judge's address",
    ),
    "failed:judge_error": OutcomeDescription("the judge failed with another error", _JUDGE),
    "failed:evaluation_timeout": OutcomeDescription(
        "each attempt took longer than ten times `judge.timeout`", "raise it, or choose a faster judge"
    ),
    "failed:poison": OutcomeDescription(
        "the process crashed each time it judged this answer or read its trace, or reading took more CPU "
        "time than `assemble.max_cpu`: it was set aside so that the others go on",
        "check the memory limit, and your own metrics, judges and patterns",
    ),
    "expired": OutcomeDescription(
        "its time ran out before it was judged", "check the age of the oldest pending answer"
    ),
    "expired:deadline": OutcomeDescription(
        "it was not judged within `evaluate.deadline`", "raise `judge.max_concurrency`, or lower the rate"
    ),
    "expired:retention": OutcomeDescription(
        "it was deleted before it was judged", "raise `assemble.linger` or `store.max_bytes`"
    ),
    "superseded": OutcomeDescription("late spans moved the answer to another span, which is counted instead"),
}
