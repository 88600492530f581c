"""Where a RAG answer can stand, in words: the vocabulary of the ledger, with what to do about each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """Where one answer stands. It is pending, or it ended in exactly one of the others."""

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
    """No answer after all: late spans moved it to another span, which is counted in its place."""

    def because(self, reason: str) -> str:
        """Return an outcome: the state and why it is so. A reason is a class of causes, never a message."""
        return f"{self}:{reason}"


POISON: Final = State.FAILED.because("poison")
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
    """How an answer ended: ``failed:judge_timeout`` taken apart."""

    state: State
    reason: str = ""

    @classmethod
    def of(cls, outcome: str) -> FinalOutcome:
        """Take an outcome apart.

        Raises:
            ValueError: no state that ends is called so.
        """
        state, _, reason = outcome.partition(":")
        if state not in (*TERMINAL, State.SUPERSEDED):
            raise ValueError(f"{state!r} is no state that ends (see `ragtrace_collector.ledger.outcomes`)")
        return cls(State(state), reason)

    def __str__(self) -> str:
        return self.state.because(self.reason) if self.reason else str(self.state)


class OutcomeDescription(NamedTuple):
    """What a state or reason says, and what a person should do about it."""

    meaning: str
    advice: str = "nothing"


def meaning_of(state: str, reason: str = "") -> OutcomeDescription:
    """Return what is known of a reason, or else of its state."""
    return _MEANINGS.get(f"{state}:{reason}") or _MEANINGS[state]


def vocabulary() -> Mapping[str, OutcomeDescription]:
    """Return every state, and every reason that has a meaning of its own as ``state:reason``, in order."""
    return dict(_MEANINGS)


_CAPTURE: Final = "see docs/capture.md for what to switch on; `ragtrace explain` shows what was read"
_JUDGE: Final = "run `ragtrace doctor --config FILE`; then judge the gap again with `ragtrace backfill`"

_MEANINGS: Final[Mapping[str, OutcomeDescription]] = {
    "queued": OutcomeDescription(
        "it waits for a free evaluator", "if it grows: raise `evaluate.concurrency`"
    ),
    "leased": OutcomeDescription("it is being judged now"),
    "postponed": OutcomeDescription(
        "an attempt failed, and it is tried again when due", "look at the reason"
    ),
    "postponed:judge_unavailable": OutcomeDescription(
        "the judge could not be reached, or was overloaded", "look at the judge's own health and limits"
    ),
    "postponed:judge_timeout": OutcomeDescription(
        "the judge did not answer in time", "raise `judge.timeout`"
    ),
    "postponed:judge_refused": OutcomeDescription(
        "key, quota, model or permission: only a person can help", "run `ragtrace doctor --config FILE`"
    ),
    "postponed:evaluation_timeout": OutcomeDescription(
        "an attempt took longer than `evaluate.job_timeout`", "raise it, or choose a faster judge"
    ),
    "postponed:over_budget": OutcomeDescription(
        "the budget is spent until its next window", "raise the budget, or lower `sample.ratio`"
    ),
    "judged": OutcomeDescription("its scores are on their way to the trace, or there"),
    "sampled_out": OutcomeDescription(
        "no rule chose it", "raise `sample.ratio`, or add a rule, if it is too few"
    ),
    "filtered": OutcomeDescription("a rule of `sample.rules` that drops excludes it"),
    "filtered:evaluation": OutcomeDescription("it belongs to an evaluator: an evaluation is never evaluated"),
    "ineligible": OutcomeDescription("there was nothing to judge"),
    "ineligible:no_content": OutcomeDescription("the instrumentation did not record the text", _CAPTURE),
    "ineligible:no_retrieval": OutcomeDescription(
        "nothing was retrieved for it, and no passages are set off in its prompt: it is no RAG call",
        "if the prompt holds them all the same: `extract.context: prompt`",
    ),
    "ineligible:empty_retrieval": OutcomeDescription(
        "the retrieval found nothing", "look at the retriever if it is many: it answers without a source"
    ),
    "ineligible:redacted": OutcomeDescription(
        "the text was replaced by a redaction mark", "see docs/privacy.md"
    ),
    "ineligible:truncated": OutcomeDescription(
        "the text was cut on its way", "raise the SDK's OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
    ),
    "ineligible:incomplete": OutcomeDescription(
        "attributes or spans were dropped before they came here", "look for limits and samplers on the way"
    ),
    "ineligible:failed_call": OutcomeDescription("the RAG call ended in an error and has no answer"),
    "ineligible:refusal": OutcomeDescription("the answer declines to answer"),
    "ineligible:no_claims": OutcomeDescription("the answer states nothing that can be checked"),
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
    "ineligible:missing_part": OutcomeDescription("a metric that this one is made of has no score"),
    "ineligible:out_of_range": OutcomeDescription(
        "the tool whose rule was asked for gives a number outside [0, 1]"
    ),
    "ineligible:peer_nan": OutcomeDescription("the tool whose rule was asked for gives no number here"),
    "over_budget": OutcomeDescription(
        "the budget was spent",
        "raise the budget or lower `sample.ratio`; `ragtrace backfill` judges it later",
    ),
    "shed": OutcomeDescription(
        "there was more than could be judged", "raise `evaluate.concurrency` or lower the rate"
    ),
    "shed:rate_limit": OutcomeDescription(
        "a minute brought more than `sample.limit`, faster than rates could be lowered",
        "if it is many: raise the limit, or lower `sample.ratio`",
    ),
    "failed": OutcomeDescription("every attempt failed; it has no score", "look at the log for the reason"),
    "failed:judge_unavailable": OutcomeDescription(
        "the judge stayed away for all `evaluate.retry_delays`", _JUDGE
    ),
    "failed:judge_timeout": OutcomeDescription(
        "the judge never answered in time", f"raise `judge.timeout`; {_JUDGE}"
    ),
    "failed:judge_refused": OutcomeDescription("key, quota, model or permission", _JUDGE),
    "failed:judge_unable": OutcomeDescription(
        "the judge lacks what the request needs, such as log-probabilities", "set `judge.verify: json`"
    ),
    "failed:judge_compromised": OutcomeDescription(
        "the judge got a planted claim wrong: nothing it says of this record counts", "set `judge.second`"
    ),
    "failed:judge_nonsense": OutcomeDescription(
        "the judge answered, but not in the form asked for",
        "choose another model; `ragtrace calibrate` tells",
    ),
    "failed:judge_cut_off": OutcomeDescription(
        "the judge's reply ended at its token limit", "raise the limit of the model or gateway"
    ),
    "failed:judge_oversized": OutcomeDescription(
        "the judge's reply is longer than any is read (4 MiB, unpacked)",
        "look at what stands at the judge's address",
    ),
    "failed:judge_error": OutcomeDescription("the judge failed in a way of its own", _JUDGE),
    "failed:evaluation_timeout": OutcomeDescription(
        "each attempt took longer than `evaluate.job_timeout`", "raise it, or choose a faster judge"
    ),
    "failed:poison": OutcomeDescription(
        "the process ended each time it was judged, or its trace looked at, or that took more CPU time than "
        "`assemble.max_cpu`: it was set aside for the sake of the others",
        "look at the memory limit, and at metrics, judges and patterns of your own",
    ),
    "expired": OutcomeDescription(
        "its time was over before it was judged", "look at the age of the oldest pending"
    ),
    "expired:deadline": OutcomeDescription(
        "it was not judged within `evaluate.deadline`", "raise `evaluate.concurrency`, or lower the rate"
    ),
    "expired:retention": OutcomeDescription(
        "it was forgotten before it was judged", "raise `assemble.linger` or `store.max_bytes`"
    ),
    "superseded": OutcomeDescription(
        "late spans moved the answer to another span, which is counted in its place"
    ),
}
