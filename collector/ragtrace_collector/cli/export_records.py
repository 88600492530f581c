"""``ragtrace export-records``: answers of production, as records with the labels of people."""

from __future__ import annotations

import heapq
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ragtrace.cli.options import FILE, PlaceOptions, command, option, takes
from ragtrace.cli.render import many, talk
from ragtrace.errors import InputError

if TYPE_CHECKING:
    from ragtrace.answers.index import AnswerIndex
    from ragtrace.answers.port import TrafficScope
    from ragtrace.answers.summary import AnswerKey, AnswerSummary
    from ragtrace.reviews import LabelRow, Review
    from ragtrace_collector.config import CollectorConfig
    from ragtrace_collector.ui.answers import RecordExport

_REDACTED: Final = "redacted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceOptions:
    """Which answers."""

    failed: bool = option("--failed", is_flag=True, help="Answers that fail.")
    disputed: bool = option(
        "--disputed", is_flag=True, help="Answers that one evaluation passes and another fails."
    )
    reviewed: bool = option(
        "--reviewed", is_flag=True, help="Answers that people reviewed: the default without another choice."
    )
    random: bool = option(
        "--random",
        is_flag=True,
        help="Of the reviewed ones only those of the random queue: a fair sample of the traffic.",
    )
    sample: int | None = option(
        "--sample",
        type=click.IntRange(1),
        metavar="N",
        help="Draw N at random, of these or, without another choice, of all answers; always the same ones.",
    )
    tenant: str | None = option("--tenant", metavar="NAME", help="Only answers of this tenant.")

    @property
    def is_of_reviews(self) -> bool:
        """Whether reviewed answers are among the chosen ones."""
        return self.reviewed or self.random or not (self.failed or self.disputed or self.sample)

    @property
    def needs_index(self) -> bool:
        """Whether reviews alone do not tell which answers are meant."""
        return self.failed or self.disputed or bool(self.sample)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsOutput:
    """Where reviews are read, and records written."""

    reviews: Path | None = option(
        "--reviews",
        type=FILE,
        metavar="PATH",
        help="The file of reviews. [default: that of --config, else ragtrace-reviews.db in the state folder]",
    )
    out: Path | None = option(
        "--out", type=FILE, metavar="FILE", help="Where the records go. [default: standard output]"
    )


@command()
@takes(
    choice=("Which answers", ChoiceOptions),
    place=("Where they are", PlaceOptions),
    output=("What is read and written", RecordsOutput),
)
def export_records(choice: ChoiceOptions, place: PlaceOptions, output: RecordsOutput) -> None:
    """Write answers of production as records, which `evaluate`, `calibrate` and your tests read.

    Each question and answer comes once. A claim that people reviewed has the majority's label, or null on a
    tie or if nobody can tell; an answer that they found supported is its own reference. `sample_probability`
    says with which probability an answer was judged and drawn, if that is known. Texts are as they were
    recorded; RAGTRACE_CAPTURE_CONTENT=redacted redacts them (again). Collector and pages may run meanwhile.

    \b
    Examples:
      ragtrace export-records --failed --disputed --since 7d --out hard.jsonl
      ragtrace export-records --sample 40 --config collector.yaml --out fair.jsonl
      ragtrace export-records --random --reviews reviews.db > labels.jsonl
      ragtrace evaluate hard.jsonl --judge openai:gpt-4o-mini
    """
    import asyncio

    import yaml  # noqa: F401 -- its absence is told before anything starts

    from ragtrace.files import replace_file

    mode = os.environ.get("RAGTRACE_CAPTURE_CONTENT", "")
    if mode in ("hashed", "off"):
        raise InputError(f"RAGTRACE_CAPTURE_CONTENT is {mode}: records without texts cannot be judged")
    config = place.config.read(only=("extract", "store", "index", "ui"), needs_secrets=False)
    path = _reviews_file(config, place, output)
    if choice.is_of_reviews and not path.is_file():
        raise InputError(
            f"there is no file of reviews {str(path)!r}: review answers on the page (`ragtrace ui`), name the"
            " file with --reviews, or choose others: --failed, --disputed or --sample"
        )
    made, reviewed = asyncio.run(_collected(choice, place, config, path if path.is_file() else None))
    rows = made.records.rows
    if mode == _REDACTED:
        made.records.rows = {same: _redacted(row) for same, row in rows.items()}
    if made.left_out and not rows:
        answers = many(made.left_out, "chosen answer")
        hint = (
            "" if "ui.traces" in made.problem else "; --set ui.traces=jaeger:URL names where the traces are"
        )
        raise InputError(f"{answers}, and the texts of none are there: {made.problem}{hint}")
    text = "".join(made.records.lines())
    if output.out:
        replace_file(output.out, text)
    else:
        click.echo(text, nl=False)
    _say(made, reviewed)


async def _collected(
    choice: ChoiceOptions, place: PlaceOptions, config: CollectorConfig, reviews: Path | None
) -> tuple[RecordExport, Mapping[AnswerKey, Sequence[Review]]]:
    from ragtrace.answers.port import AnswerGone, OpenedAnswer, TrafficScope
    from ragtrace.process import SystemClock
    from ragtrace_collector.cli.following import searched
    from ragtrace_collector.cli.places import open_place
    from ragtrace_collector.ui.answers import RecordExport

    labels, reviewed = await _labels(choice, reviews) if reviews else ({}, {})
    wanted = {key: row for key, row in labels.items() if choice.is_of_reviews}
    if not (choice.needs_index or place.source or place.since or place.service):

        async def gone(key: AnswerKey) -> OpenedAnswer:
            raise AnswerGone("")  # every chosen answer has its texts beside its reviews

        made = RecordExport(gone, labels)
        await made.add(dict.fromkeys(wanted))
        return made, reviewed
    clock = SystemClock()
    since_ns = place.since.at(clock.now_ns()) if place.since else None
    scope = TrafficScope(tenant=choice.tenant, service=place.service, since_ns=since_ns)
    async with open_place(config, place, clock) as found:
        await searched(found)
        index = found.place.index
        drawn: dict[AnswerKey, float | None] = {}
        async with aclosing(_chosen(index, choice, scope)) as answers:
            async for answer in answers:
                drawn[answer.key] = answer.probability
        for key in wanted:
            versions = [one for one in await index.versions(key) if _is_in(one, scope)]
            drawn |= {one.key: one.probability for one in versions[:1]}
        made = RecordExport(found.place.source.open, labels)
        await made.add(_sampled(drawn, choice.sample))
    return made, reviewed


def _reviews_file(config: CollectorConfig, place: PlaceOptions, output: RecordsOutput) -> Path:
    from ragtrace.files import state_folder
    from ragtrace_collector.service.page import REVIEWS_NAME, reviews_of

    if output.reviews:
        return output.reviews
    return reviews_of(config) if place.config.path or config.ui.reviews else state_folder() / REVIEWS_NAME


async def _labels(
    choice: ChoiceOptions, path: Path
) -> tuple[Mapping[AnswerKey, LabelRow], Mapping[AnswerKey, Sequence[Review]]]:
    from ragtrace.reviews import ReviewFile, ReviewPick

    async with aclosing(ReviewFile(path)) as file:
        rows = await file.labels(tenant=choice.tenant)
        reviewed = await file.reviewed(tenant=choice.tenant)
    kept = [row for row in rows if not choice.random or row.picked is ReviewPick.RANDOM]
    return {row.key: row for row in kept}, reviewed


async def _chosen(
    index: AnswerIndex, choice: ChoiceOptions, scope: TrafficScope
) -> AsyncGenerator[AnswerSummary, None]:
    from ragtrace.answers.port import AnswerFilter, SortBy
    from ragtrace.model import Label

    if choice.failed:
        async for answer in index.every(AnswerFilter(scope=scope, label=Label.FAIL)):
            yield answer
    if choice.disputed:
        async for answer in index.every(AnswerFilter(scope=scope), sort=SortBy.DOUBT):
            if not answer.is_disputed:  # those come first
                break
            yield answer
    if choice.sample and not (choice.failed or choice.disputed or choice.is_of_reviews):
        async for answer in index.every(AnswerFilter(scope=scope)):
            yield answer


def _is_in(answer: AnswerSummary, scope: TrafficScope) -> bool:
    return answer.time_ns >= (scope.since_ns or 0) and scope.service in (None, answer.service)


def _sampled(
    answers: Mapping[AnswerKey, float | None], number: int | None
) -> Mapping[AnswerKey, float | None]:
    """Draw some, always the same ones: each has the same chance."""
    from hashlib import sha256

    if number is None or number >= len(answers):
        return answers
    share = number / len(answers)
    drawn = heapq.nsmallest(number, answers, key=lambda key: sha256(f"sample {key}".encode()).digest())
    return {key: p and p * share for key in drawn for p in [answers[key]]}


def _redacted(row: Mapping[str, Any]) -> dict[str, Any]:
    """Redact the texts of a record; a person has one pseudonym in all of them."""
    from ragtrace.capture.privacy.policy import ContentFilter, ContentPolicy, possible
    from ragtrace.model import Part

    if possible(_REDACTED) != _REDACTED:
        raise InputError("RAGTRACE_CAPTURE_CONTENT=redacted needs the extra `privacy`")
    texts = ContentFilter(ContentPolicy(mode=_REDACTED))

    def of(value: Any) -> Any:
        if isinstance(value, str):
            return texts.redacted(value, Part.ANSWER)
        if isinstance(value, dict):
            return {name: each if name in ("id", "label") else of(each) for name, each in value.items()}
        return [of(each) for each in value] if isinstance(value, list) else value

    return {name: value if name in ("id", "answer_label") else of(value) for name, value in row.items()}


def _say(made: RecordExport, reviewed: Mapping[AnswerKey, Sequence[Review]]) -> None:
    from ragtrace.reviews import ReviewAgreement

    rows = made.records.rows.values()
    labels = sum(claim["label"] is not None for row in rows for claim in row["claims"])
    ids = {row["id"] for row in rows if row["claims"]}
    found = ReviewAgreement(said for key, said in reviewed.items() if f"{key.trace_id}:{key.span_id}" in ids)
    agreed = f"; people and judge agree on {found.agreed} of {found.decided} claims" if found.decided else ""
    talk(f"{many(len(rows), 'answer')} with {many(labels, 'labeled claim')}{agreed}")
    if made.records.repeated:
        talk(f"left out: {many(made.records.repeated, 'answer')} with question and answer of another")
    if made.left_out:
        talk(f"left out: {many(made.left_out, 'answer')} whose texts are not there: {made.problem}")
