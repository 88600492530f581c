"""Transcripts: what judges were asked and replied, to score verdicts again without a call.

A file of them holds content: questions, chunks, answers and the judges' replies. Its mode is 0600.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from ragtrace.answers.rows import from_json, to_json
from ragtrace.errors import ConfigError, InputError, JudgeCutOff, JudgeNonsense, JudgeUnable, NotInTranscript
from ragtrace.judge.cache import as_json, asked, digest, read_reply, write_reply
from ragtrace.judge.layers import JudgeLayer
from ragtrace.metrics import StepLimits
from ragtrace.model import JudgedAnswer, JudgeIdentity, MetricFailure, Sample, Usage
from ragtrace.pipeline import Evaluator, MetricSpec, attach, map_in_order
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, Metric
from ragtrace.sql import SqliteForm, open_private
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.trace import Span

_log = logging.getLogger(__name__)

_PAGE: Final = 64
_SCHEMA: Final = """
CREATE TABLE reply (
    request BLOB NOT NULL, session TEXT NOT NULL, time INTEGER NOT NULL,
    error TEXT NOT NULL, body BLOB NOT NULL, usage BLOB NOT NULL,
    PRIMARY KEY (request, session, time)) WITHOUT ROWID;
CREATE TABLE evaluation (
    number INTEGER PRIMARY KEY, record_id TEXT NOT NULL, evaluator_set TEXT NOT NULL,
    evaluator_version TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, body BLOB NOT NULL,
    UNIQUE (record_id, evaluator_set, evaluator_version));
"""
_FORM: Final = SqliteForm(application_id=0x72616773, schema=_SCHEMA, version=2)  # "rags"


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptReply:
    """The recorded outcome of a request."""

    body: bytes
    usage: bytes
    error: str = ""
    """The name of the failure, if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptRecord(JudgedAnswer):
    """A judged answer, and what judging it again takes."""

    second_judge: JudgeIdentity | None = None
    limits: StepLimits = field(default_factory=StepLimits)
    """The limits and the form of the judge's requests."""
    metrics: tuple[MetricSpec, ...] = ()
    """The settings of the metrics; empty in files of earlier versions."""
    asked_with: tuple[MetricSpec, ...] = ()
    """The metrics that the judge was asked for, if they are not these."""
    session: str = ""
    """The session of the judges' replies: one opening of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorInfo:
    """An evaluator of a file's records."""

    evaluator_set: str
    evaluator_version: str
    provider: str
    model: str
    records: int

    @property
    def name(self) -> str:
        """The name for people and for ``FILE#NAME``."""
        return f"{self.provider}:{self.model}@{self.short_version}"

    @property
    def short_version(self) -> str:
        """The beginning of its version, which distinguishes evaluators of the same judge."""
        return self.evaluator_version.rpartition("+")[2][:8]

    def is_called(self, name: str) -> bool:
        """Return whether the name matches this evaluator."""
        judge, _, version = name.rpartition("@")
        names = {self.provider, self.model, f"{self.provider}:{self.model}", self.evaluator_version}
        if name in names:
            return True
        digest = self.evaluator_version.rpartition("+")[2]
        return bool(version) and digest.startswith(version) and (not judge or judge in names)


class Transcripts:
    """Stores the judges' replies and the evaluations. Use it in a ``with`` statement."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        self._must_exist = must_exist
        self.session = uuid4().hex
        self.is_whole = True
        """Whether everything was stored."""
        self._writing = threading.Lock()
        self._is_open = False

    def __enter__(self) -> Self:
        """Open or create the file.

        Raises:
            InputError: it must exist but does not.
            ConfigError: it cannot be used, or belongs to another program.
        """
        if self._must_exist and not self.path.is_file():
            raise InputError(
                f"there is no file {str(self.path)!r}: `--transcripts` of `ragtrace backfill` writes one"
            )
        try:
            self._db = open_private(self.path, _FORM, is_shared=True)
        except OSError as exc:
            raise ConfigError(f"the transcripts {str(self.path)!r} cannot be used: {exc}") from exc
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        # A cancelled task may leave a writing thread: SQLite crashes if the file is closed meanwhile.
        with self._writing:
            self._is_open = False
            self._db.close()

    def said(self, request: bytes, *, session: str, time: int) -> TranscriptReply | None:
        """Return the n-th outcome of a request in a session; ``None`` if there is none."""
        row = self._db.execute(
            "SELECT body, usage, error FROM reply WHERE request = ? AND session = ? AND time = ?",
            (request, session, time),
        ).fetchone()
        return TranscriptReply(body=row[0], usage=row[1], error=row[2]) if row else None

    async def keep_said(self, request: bytes, said: TranscriptReply) -> None:
        """Store the outcome of a request in this session."""
        await asyncio.to_thread(
            self._write,
            "INSERT INTO reply SELECT ?1, ?2, coalesce(max(time) + 1, 0), ?3, ?4, ?5"
            " FROM reply WHERE request = ?1 AND session = ?2",
            *(request, self.session, said.error, said.body, said.usage),
        )

    def keep(self, kept: TranscriptRecord) -> None:
        """Store an evaluation; it replaces the same evaluator's earlier one of the record.

        An evaluation without calls came from a cache, so it does not replace an existing one.
        """
        evaluation = kept.evaluation
        self._write(
            "INSERT INTO evaluation VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET"
            " body = ?6 WHERE ?7",
            *(_text(kept.record.id), evaluation.evaluator_set, evaluation.evaluator_version),
            *(evaluation.judge.provider, evaluation.judge.model, zlib.compress(to_json(kept))),
            evaluation.usage.calls > 0 or evaluation.judge.computes,
        )

    def find(self, record_id: str, evaluator_set: str, evaluator_version: str) -> TranscriptRecord | None:
        """Return an evaluator's evaluation of a record; ``None`` if it is not stored.

        Raises:
            InputError: it has another form.
        """
        row = self._db.execute(
            "SELECT body FROM evaluation WHERE record_id = ? AND evaluator_set = ? AND evaluator_version = ?",
            (_text(record_id), evaluator_set, evaluator_version),
        ).fetchone()
        return _kept(row[0]) if row else None

    def evaluators(self) -> tuple[EvaluatorInfo, ...]:
        """Return the evaluators, in the order of their first evaluation."""
        rows = self._db.execute(
            "SELECT evaluator_set, evaluator_version, provider, model, count(*) FROM evaluation"
            " GROUP BY 1, 2, 3, 4 ORDER BY min(number)"
        )
        return tuple(
            EvaluatorInfo(
                evaluator_set=name, evaluator_version=version, provider=provider, model=model, records=number
            )
            for name, version, provider, model, number in rows
        )

    def evaluator(self, name: str | None = None) -> EvaluatorInfo:
        """Return the evaluator of this name: a judge, a version, or both as in ``model@version``.

        Without a name: the only evaluator.

        Raises:
            InputError: no evaluator or more than one has that name; the message lists them.
        """
        there = self.evaluators()
        found = [evaluator for evaluator in there if name is None or evaluator.is_called(name)]
        if len(found) == 1:
            return found[0]
        listed = "".join(
            f"\n  {evaluator.name}  {evaluator.evaluator_set}  {evaluator.records} records"
            for evaluator in there
        )
        if not there:
            raise InputError(f"{str(self.path)!r} holds no evaluation")
        wrong = "several evaluators" if found else f"no evaluator {name!r}"
        raise InputError(f"{str(self.path)!r} holds {wrong}; name one as {self.path.name}#NAME:{listed}")

    def of(self, evaluator: EvaluatorInfo) -> Iterator[TranscriptRecord]:
        """Yield an evaluator's evaluations, in the order of their first one.

        Raises:
            InputError: an entry has another form.
        """
        last = 0
        while rows := self._db.execute(
            "SELECT number, body FROM evaluation"
            " WHERE number > ? AND evaluator_set = ? AND evaluator_version = ? AND provider = ? AND model = ?"
            " ORDER BY number LIMIT ?",
            (
                *(last, evaluator.evaluator_set, evaluator.evaluator_version),
                *(evaluator.provider, evaluator.model, _PAGE),
            ),
        ).fetchall():
            last = rows[-1][0]
            for _, body in rows:
                yield _kept(body)

    def _write(self, statement: str, *values: object) -> None:
        try:
            with self._writing:
                if self.is_whole and self._is_open:
                    self._db.execute(statement, values)
        except sqlite3.Error as exc:  # evaluations are worth more than their transcript
            self.is_whole = False
            _log.warning(
                "the transcripts %s can no longer be written (%s): judging continues without them",
                self.path,
                exc,
            )


def _kept(body: bytes) -> TranscriptRecord:
    return from_json(TranscriptRecord, zlib.decompress(body))


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


ReplyT = TypeVar("ReplyT", bound=BaseModel)

_KEY_FORM: Final = 1
"""Part of every key: changes with the format of the entries."""
_SAID: Final = {kind.__name__: kind for kind in (JudgeNonsense, JudgeCutOff, JudgeUnable)}
"""Failures that are recorded, since the next requests depend on them. Other failures are not."""


def recorded(judge: Judge, transcripts: Transcripts) -> Judge:
    """Record the judge's reply to each request."""
    return _Recorded(judge, transcripts)


def replayed(identity: JudgeIdentity, transcripts: Transcripts, *, session: str) -> Judge:
    """Return a judge that replays this judge's replies of a session, with their original usage.

    Repeated requests get their replies in order. The judge itself is never asked: a request without a
    recorded reply raises `NotInTranscript`.
    """
    return _Replayed(identity, transcripts, session)


class _Recorded(JudgeLayer):
    def __init__(self, judge: Judge, transcripts: Transcripts) -> None:
        super().__init__(judge)
        self._transcripts = transcripts

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        try:
            reply = await self.inner.ask(request)
        except tuple(_SAID.values()) as exc:
            message, usage = as_json({"message": str(exc)}), as_json(asdict(exc.usage))
            await self._keep(request, TranscriptReply(body=message, usage=usage, error=type(exc).__name__))
            raise
        usage = as_json(asdict(reply.usage))
        await self._keep(request, TranscriptReply(body=write_reply(reply), usage=usage))
        return reply

    async def _keep(self, request: JudgeRequest[Any], said: TranscriptReply) -> None:
        await self._transcripts.keep_said(_key(self.identity, request), said)


class _Replayed:
    def __init__(self, identity: JudgeIdentity, transcripts: Transcripts, session: str) -> None:
        self.identity = identity
        self._transcripts = transcripts
        self._session = session
        self._times: defaultdict[bytes, int] = defaultdict(int)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Replay the recorded reply.

        Raises:
            JudgeError: the recorded failure, or no reply is recorded.
        """
        key = _key(self.identity, request)
        said = self._transcripts.said(key, session=self._session, time=self._times[key])
        self._times[key] += 1
        usage = Usage(**json.loads(said.usage)) if said else Usage()
        if said and said.error:
            raise _SAID.get(said.error, JudgeNonsense)(json.loads(said.body)["message"], usage=usage)
        reply = read_reply(said.body, request.reply_type, usage=usage) if said else None
        if reply is None:
            message = f"no reply of {self.identity.model} to this {request.step} is recorded"
            raise NotInTranscript(message, usage=Usage())
        return reply

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def _key(identity: JudgeIdentity, request: JudgeRequest[Any]) -> bytes:
    who = [_KEY_FORM, *identity.named]
    return digest([*asked(request, who), request.user, request.max_output_tokens])


_NOT_KNOWN = "not_in_transcript"


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredRecord:
    """A record with rescored verdicts."""

    before: TranscriptRecord
    after: TranscriptRecord

    @property
    def is_whole(self) -> bool:
        """Whether the transcript had every reply that the metrics needed."""
        return not any(failure.error_type == _NOT_KNOWN for failure in self.after.evaluation.failures)

    @property
    def asks_anew(self) -> bool:
        """Whether a metric needs a new request; recorded failures do not count, since they fail again."""
        failed = {(failure.metric, failure.profile) for failure in self.before.evaluation.failures}
        return any(
            failure.error_type == _NOT_KNOWN and (failure.metric, failure.profile) not in failed
            for failure in self.after.evaluation.failures
        )

    def carrier(self, options: AttachOptions, *, now_ns: int) -> Span | None:
        """Build the carrier of the new verdicts. It supersedes the old one if both have the same metrics.

        It has no cost: the old one has it. ``None`` if the new verdicts get no carrier.

        Raises:
            InputError: the record does not come from a trace.
        """
        make = partial(
            attach,
            record=self.after.record,
            sample=self.after.sample or Sample(rule="ratio", rate=1.0, probability=1.0),
            options=options,
            now_ns=now_ns,
            mode="backfill",
        )
        was = make(self.before.evaluation)
        return make(unpaid(self.after).evaluation, earlier=(was,) if was else ())


async def rescore(
    kept: Iterable[TranscriptRecord], transcripts: Transcripts, *, metrics: Sequence[MetricSpec] | None = None
) -> AsyncIterator[RescoredRecord]:
    """Evaluate records again from recorded replies; no judge is asked.

    ``metrics`` defaults to those that ran, with their thresholds. If a reply is missing, the metric returns a
    ``MetricFailure`` of the type ``not_in_transcript``.
    """

    @cache
    def voice(identity: JudgeIdentity, session: str) -> Judge:
        return replayed(identity, transcripts, session=session)

    for record in kept:
        ran = record.metrics if metrics is None else tuple(metrics)
        asked_with = record.asked_with or tuple(specs_of(record))
        evaluator = Evaluator(
            metrics=metrics_of(record) if metrics is None else [each.open() for each in metrics],
            judge=voice(record.evaluation.judge, record.session),
            second_judge=voice(record.second_judge, record.session) if record.second_judge else None,
            limits=record.limits,
            asked_with=[*_opened(asked_with)],
        )
        evaluation = await evaluator.evaluate(record.record)
        after = replace(record, evaluation=evaluation, metrics=ran, asked_with=asked_with)
        yield RescoredRecord(before=record, after=after)


def _opened(specs: Iterable[MetricSpec]) -> Iterator[Metric]:
    for spec in specs:
        with suppress(ConfigError):  # of code that is gone: it shares no request
            yield spec.open()


def metrics_of(record: TranscriptRecord) -> list[Metric]:
    """Make the metrics of a record's evaluation, with their settings, thresholds and pass rules.

    Raises:
        ConfigError: a metric came from code at an address that an earlier version did not keep.
    """
    found = []
    for outcome, spec in zip(record.evaluation.outcomes, specs_of(record), strict=True):
        if not isinstance(outcome, MetricFailure):
            spec = replace(spec, threshold=outcome.threshold, pass_when=outcome.pass_when)
        found.append(spec.open())
    return found


def specs_of(record: TranscriptRecord) -> Sequence[MetricSpec]:
    """Return the settings of a record's metrics."""
    return record.metrics or [
        MetricSpec(name=each.metric, profile=each.profile) for each in record.evaluation.outcomes
    ]


def unpaid(kept: TranscriptRecord) -> TranscriptRecord:
    """Remove the cost of an evaluation without calls."""
    evaluation = kept.evaluation
    outcomes = tuple(replace(outcome, usage=Usage()) for outcome in evaluation.outcomes)
    return replace(kept, evaluation=replace(evaluation, outcomes=outcomes, usage=Usage()))


async def ask_again(
    kept: Iterable[TranscriptRecord],
    transcripts: Transcripts,
    judge: Judge,
    *,
    metrics: Sequence[MetricSpec] | None = None,
    on_judged: Callable[[TranscriptRecord, TranscriptRecord], None],
    concurrency: int = 8,
) -> None:
    """Judge records with another judge under their original limits, and record its replies.

    ``metrics`` defaults to those that ran. ``on_judged`` is called with each record before and after, in
    order. Records that this judge has already judged without a failure are taken from the transcripts.
    """
    asked = recorded(judge, transcripts)

    async def work(each: TranscriptRecord) -> tuple[TranscriptRecord, TranscriptRecord]:
        chosen = metrics_of(each) if metrics is None else [one.open() for one in metrics]
        evaluator = Evaluator(metrics=chosen, judge=asked, limits=each.limits)
        known = transcripts.find(each.record.id, evaluator.set, evaluator.version)
        if known and known.record == each.record and not known.evaluation.failures:
            return each, known
        evaluation = await evaluator.evaluate(each.record)
        session = transcripts.session
        ran = each.metrics if metrics is None else tuple(metrics)
        judged = replace(
            each, evaluation=evaluation, second_judge=None, session=session, metrics=ran, asked_with=()
        )
        transcripts.keep(judged)
        return each, judged

    async def emit(pair: tuple[TranscriptRecord, TranscriptRecord]) -> None:
        on_judged(*pair)

    async def each() -> AsyncIterator[TranscriptRecord]:
        for record in kept:
            yield record

    await map_in_order(each(), work, emit, concurrency=concurrency)
