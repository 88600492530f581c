"""What a run of the demo found: verdicts of each judge on each answer, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ragtrace.cli.demo.agreement import Agreement, compare
from ragtrace.cli.demo.traffic import DemoAnswer
from ragtrace.cli.demo.verdicts import ReadClaim, TraceVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerResult:
    """One answer, and what every judge says of it."""

    labeled: DemoAnswer
    trace_id: str
    verdicts: Mapping[str, TraceVerdict]
    """By judge: people first."""
    page: str
    """Where it is on the demo's page."""
    link: str | None
    """Where its trace is in the back end."""

    @property
    def people(self) -> TraceVerdict:
        """What the annotators say."""
        return next(iter(self.verdicts.values()))

    def parts(self) -> bool:
        """Whether a judge that decided says something else than the annotators."""
        decided = [verdict for verdict in self.verdicts.values() if verdict.score is not None]
        return len({bool(verdict.findings) for verdict in decided}) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongClaim:
    """A claim that a passage contradicts, with the quote that shows it."""

    answer: AnswerResult
    claim: ReadClaim

    def word_of(self, judge: str) -> str:
        """Say what another judge says of the same claim."""
        own = _flat(self.claim.claim)
        for said in self.answer.verdicts[judge].said:
            if _flat(said.claim) in own or own in _flat(said.claim):
                return "open" if said.verdict == "unjudged" else said.verdict
        return "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The whole run."""

    judges: Sequence[str]
    """People first."""
    answers: Sequence[AnswerResult]
    """Those that every judge gave a verdict on, in the order of the sample."""
    missing: int
    """The others."""

    def agreement(self, judge: str) -> Agreement:
        """Compare a judge with the annotators' labels, on the answers that it decided."""
        return compare(
            (bool(answer.verdicts[judge].findings), not answer.labeled.is_faithful)
            for answer in self.answers
            if answer.verdicts[judge].score is not None
        )

    def unscored(self, judge: str) -> int:
        """Count the answers that a judge left open."""
        return sum(answer.verdicts[judge].score is None for answer in self.answers)

    def wrong_claim(self) -> WrongClaim | None:
        """Return what is worth a look: a claim with a quote that contradicts it, else any that failed."""
        found = [*self._wrong()]
        return next((wrong for wrong in found if wrong.claim.quote), found[0] if found else None)

    def _wrong(self) -> Iterator[WrongClaim]:
        for answer in self.answers:
            for claim in answer.people.findings:
                yield WrongClaim(answer=answer, claim=claim)


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold().rstrip(".")
