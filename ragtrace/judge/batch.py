"""A judge whose requests go through OpenAI's Batch API: half the price, and an answer within a day.

It sends the same prompts as the live judge, so the evaluator is the same. Only the transport differs: the
lane collects the requests of concurrent evaluations and sends them as one batch as soon as no new request
arrives. Their next requests go into the next batch.

A request is paid for once, even if the process crashes. Its content identifies it. The log writes its batch
to disk before the batch is created. If the id is lost, the batch is looked up at the provider. A repeated
request finds its batch, and waits for it or takes its reply (ADR 0011).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace.http import Backoff, Sleep
from ragtrace.judge.endpoint import (
    Access,
    Endpoint,
    JsonObject,
    RequestRejected,
    check_error_within,
    raise_rejection,
)
from ragtrace.judge.layers import CallRequest, JudgeCall, JudgeLayer, document_of, layer_of
from ragtrace.judge.openai import LanguageModelJudge
from ragtrace.judge.spec import BatchSettings, JudgeSettings
from ragtrace.model import Usage
from ragtrace.ports import Clock, Judge
from ragtrace.process import SystemClock
from ragtrace.sql import SqliteForm, is_busy, open_private

T = TypeVar("T")

_TRANSFER_TIMEOUT_S: Final = 600.0
"""For a file of 200 MB."""
_ROUTE: Final[Literal["/v1/chat/completions"]] = "/v1/chat/completions"
_OUR_KEY: Final = "ragtrace_batch"
"""The name of our key in a batch's metadata."""
_ENDED: Final = ("completed", "failed", "expired", "cancelled")
_NOTHING: Final = Usage()
_TRANSFER: Final = CallRequest(body={}, document=b"", output_tokens=0)
"""File transfers and status requests are free and use no tokens."""
_PAGE: Final = 100
_MOST_RESULTS_BYTES: Final = 512 << 20
"""The size limit of one file of replies: 50,000 replies (the limit of a batch) of 10 kB each."""
_LONGEST_QUIET_S: Final = 5.0
_ATTEMPTS: Final = 20
_LONGEST_PAUSE_S: Final = 900.0
_DRAWS_KNOWN: Final = 200_000
_ENDED_KEPT: Final = 4
_CLOCKS_DIFFER_S: Final = 3_600
_SCHEMA: Final = """
CREATE TABLE batch (
    key TEXT PRIMARY KEY, planned_at_s INTEGER NOT NULL, file_id TEXT, batch_id TEXT,
    has_ended INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE request (
    id TEXT PRIMARY KEY, batch TEXT NOT NULL REFERENCES batch ON DELETE CASCADE) WITHOUT ROWID;
CREATE INDEX request_batch ON request (batch);
"""
_FORM: Final = SqliteForm(
    application_id=0x72616762,  # "ragb"
    schema=_SCHEMA,
    # two processes with the same requests would both pay
    pragmas=("locking_mode = EXCLUSIVE", "foreign_keys = ON"),
    busy_s=0,
)
_KEPT_S: Final = 30 * 86_400
"""Batch files expire after this time (https://platform.openai.com/docs/api-reference/files/create)."""


class BatchJudge(JudgeLayer):
    """A judge whose requests are sent in batches."""

    least_timeout_s = 3 * 86_400.0
    """A batch may take a day, after waiting for a full queue at the provider."""

    def __init__(self, judge: Judge, lane: BatchLane) -> None:
        super().__init__(judge)
        self.lane = lane

    async def aclose(self) -> None:
        """Stop polling. Batches continue at the provider."""
        await self.lane.aclose()


def batches_of(judge: Judge) -> BatchLog | None:
    """Return the log of the batches in which a judge's requests are sent, if they are."""
    layer = layer_of(judge, BatchJudge)
    return layer.lane.log if layer else None


def open_batch_judge(settings: JudgeSettings, access: Access) -> Judge:
    """Open a judge behind an OpenAI endpoint whose requests are sent in batches.

    Raises:
        ConfigError: the settings, or the log of the batches, cannot be used.
    """
    assert settings.batches is not None
    # requests of the same model, parameters and endpoint can use one another's replies
    shared = "|".join(filter(None, (access.url, settings.argument, settings.parameters)))
    lane = BatchLane(
        api=BatchApi(access, who=f"judge {settings.argument} at {access.host}"),
        log=BatchLog(settings.batches.path_of(shared)),
        settings=settings.batches,
    )
    return BatchJudge(LanguageModelJudge(settings, access, instead=lane.post), lane)


class BatchLane:
    """Sends posted requests in batches and returns their replies.

    After the provider's queue was full, batches are half as large, and one at a time is under way. Only the
    failure of a single request is ``JudgeUnavailable``: a retry is a new request, which is paid for again.
    """

    def __init__(
        self, *, api: BatchApi, log: BatchLog, settings: BatchSettings, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.log = log
        self._api = api
        self._settings = settings
        self._sleep = sleep
        self._room = settings.most_requests
        """The limit of requests per batch."""
        self._backoff = Backoff(first_wait_s=settings.poll_s, longest_wait_s=_LONGEST_PAUSE_S)
        self._refusals = 0
        """Since the last batch that succeeded."""
        self._draws = lru_cache(_DRAWS_KNOWN)(lambda _digest: count())
        self._waiting: deque[_Waiting] = deque()
        self._is_news = asyncio.Event()
        self._outcomes: OrderedDict[str, asyncio.Future[_Outcome]] = OrderedDict()
        """The outcomes of pending batches, and of the last ones that ended."""
        self._work: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def post(self, path: str, call: JudgeCall) -> Any:
        """Send a request in a batch; return the JSON of its reply.

        Raises:
            RequestRejected: the endpoint rejected this request with 400 or 422.
            JudgeError: there is no reply.
        """
        assert f"/v1{path}" == _ROUTE
        body = call.asked.body
        # other parameters follow what was learned about the endpoint, which a crash forgets
        asked = document_of({"model": body["model"], "messages": body["messages"]})
        digest = hashlib.sha256(asked).hexdigest()[:40]
        # a repeated request gets a reply of its own, as from a live judge
        name = f"{digest}-{next(self._draws(digest))}"
        line = {"custom_id": name, "method": "POST", "url": _ROUTE, "body": json.loads(call.asked.document)}
        outcome: _Outcome = None
        while outcome is None:
            sent: _Planned | _Outcome = self.log.batch_of(name)
            if sent is None:  # queue it, and wait until it is sent
                # ASCII: some line readers split at U+2028
                sent = await self._queued(_Waiting(name, json.dumps(line).encode() + b"\n", _promise()))
            outcome = await asyncio.shield(self._followed(sent)) if isinstance(sent, _Planned) else sent
        if isinstance(outcome, _Failure):
            call.stayed()  # nobody worked on its batch
            raise outcome.kind(outcome.message, usage=call.usage)
        self.log.take(name)
        return outcome.reply_to(name, who=self._api.who, call=call)

    async def aclose(self) -> None:
        """Stop polling. Batches continue at the provider."""
        tasks = [*self._under_way, *([self._work] if self._work else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.log.close()
        await self._api.aclose()

    async def _queued(self, waiting: _Waiting) -> _Planned | _Failure | None:
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._run())
        self._waiting.append(waiting)
        self._is_news.set()
        return await waiting.placed

    async def _run(self) -> None:
        try:
            while True:
                await self._quiet()
                # since the queue was full, one at a time
                while self._room < self._settings.most_requests and self._under_way:
                    await asyncio.wait(self._under_way)
                if self._refusals:
                    await self._sleep(self._backoff.own_wait_s(self._refusals - 1))
                if group := self._group():
                    self._start(self._send(group), *(waiting.placed for waiting in group))
        finally:
            for waiting in self._waiting:
                waiting.placed.cancel()

    async def _quiet(self) -> None:
        """Wait until there are requests, and no new one arrives or the batch is full."""
        quiet_s = min(_LONGEST_QUIET_S, self._settings.poll_s)
        while len(self._waiting) < self._room:
            self._is_news.clear()
            try:
                async with asyncio.timeout(quiet_s if self._waiting else None):
                    await self._is_news.wait()
            except TimeoutError:
                break

    def _group(self) -> list[_Waiting]:
        """Return the next requests, as many as fit into a batch."""
        group: list[_Waiting] = []
        left = self._settings.most_bytes
        while self._waiting and len(group) < self._room:
            left -= len(self._waiting[0].line)
            if group and left < 0:
                break
            waiting = self._waiting.popleft()
            if not waiting.placed.done():
                group.append(waiting)
        return group

    def _start(self, work: Coroutine[Any, Any, None], *promises: asyncio.Future[Any]) -> None:
        """Begin a task. If it ends by an error, so do those who wait for these promises."""

        def end(task: asyncio.Task[None]) -> None:
            self._under_way.discard(task)
            error = None if task.cancelled() else task.exception()
            for promise in promises:
                if not promise.done():
                    promise.set_exception(error) if error else promise.cancel()

        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(end)

    async def _send(self, group: Sequence[_Waiting]) -> None:
        placed = await self._placed(group)
        for waiting in group:
            waiting.resolve(placed)

    async def _placed(self, group: Sequence[_Waiting]) -> _Planned | _Failure | None:
        try:
            planned = self.log.plan([waiting.id for waiting in group])
            lines = b"".join(waiting.line for waiting in group)
            try:
                file_id = await self._patiently(lambda: self._api.upload(lines))
            except JudgeRefused:
                self.log.drop(planned)
                raise
            planned = self.log.note(planned, file_id=file_id)
            planned = self.log.note(planned, batch_id=(await self._created(planned, file_id)).id)
        except QueueFull:
            return self._refused(planned)
        except JudgeError as exc:
            return _Failure.of(exc)
        self._settings.tell(f"batch {planned.batch_id}: {len(group):,} requests sent")
        self._followed(planned)
        return planned

    async def _created(self, planned: _Planned, file_id: str) -> JsonObject:
        """Create a batch exactly once: after an unclear failure, look it up here or in the next run."""
        for attempt in range(_ATTEMPTS):
            try:
                return await self._api.create(file_id, planned.key)
            except JudgeRefused:
                if not attempt:
                    self.log.drop(planned)
                raise
            except (JudgeUnavailable, JudgeTimeout):
                await self._sleep(self._settings.poll_s)
                if found := await self._found(planned):
                    return found
        what = "it did not confirm the batch; the next run looks it up"
        raise JudgeTimeout(f"{self._api.who}: {what}", usage=_NOTHING)

    async def _found(self, planned: _Planned) -> JsonObject | None:
        file_id = planned.file_id
        if file_id is None:  # without a file there is no batch
            return None
        since_s = planned.planned_at_s - _CLOCKS_DIFFER_S
        return await self._patiently(
            lambda: self._api.find(file_id=file_id, key=planned.key, since_s=since_s)
        )

    def _refused(self, planned: _Planned) -> _Failure | None:
        """Have the batch's requests sent again in smaller batches, up to the limit of tries."""
        self._room = max(1, min(self._room, self.log.drop(planned)) // 2)
        self._refusals += 1
        if self._refusals < _ATTEMPTS:
            self._settings.tell("the provider's queue of batches is full: smaller ones follow, one at a time")
            return None
        what = "its queue of batches stays full (limit of enqueued tokens): run it again later"
        failure = _Failure(JudgeTimeout, f"{self._api.who}: {what}")
        while self._waiting:  # every one of them would wait as long
            self._waiting.popleft().resolve(failure)
        return failure

    def _followed(self, planned: _Planned) -> asyncio.Future[_Outcome]:
        outcome = self._outcomes.get(planned.key)
        if outcome is None:
            outcome = self._outcomes[planned.key] = _promise()
            self._start(self._follow(planned, outcome), outcome)
        return outcome

    async def _follow(self, planned: _Planned, outcome: asyncio.Future[_Outcome]) -> None:
        try:
            ended = await self._ended(planned)
        except JudgeError as exc:
            ended = _Failure.of(exc)
        outcome.set_result(ended)
        if not isinstance(ended, _Replies):
            del self._outcomes[planned.key]
        done = [key for key, each in self._outcomes.items() if each.done()]
        for key in done[:-_ENDED_KEPT]:
            del self._outcomes[key]

    async def _ended(self, planned: _Planned) -> _Outcome:
        """Wait for a batch to end; ``None`` if its requests must be sent again."""
        batch_id = planned.batch_id
        if batch_id is None:
            found = await self._found(planned)
            if found is None:
                self.log.drop(planned)
                return None
            batch_id = str(found.id)
            planned = self.log.note(planned, batch_id=batch_id)
        last_status = ""
        while True:
            batch = await self._patiently(partial(self._api.retrieve, batch_id))
            if batch.status != last_status:
                self._settings.tell(f"batch {batch_id}: {_progress(batch)}")
                last_status = batch.status
            if batch.status in _ENDED:
                break
            await self._sleep(self._settings.poll_s)
        if batch.status != "failed":
            return await self._answers(planned, batch)
        faults = _faults(batch)
        if any(fault.code == "token_limit_exceeded" for fault in faults):
            return self._refused(planned)
        self.log.drop(planned)
        # their messages may quote a prompt
        why = ", ".join(f"{fault.code} (line {fault.line})" for fault in faults[:3]) or "no reason was given"
        what = f"the batch {batch_id} was turned down: {why}"
        return _Failure(JudgeRefused, f"{self._api.who}: {what}")

    async def _answers(self, planned: _Planned, batch: JsonObject) -> _Outcome:
        lines: dict[str, JsonObject] = {}
        for file_id in filter(None, (batch.error_file_id, batch.output_file_id)):
            try:
                replies = await self._patiently(partial(self._api.lines, str(file_id)))
            except RequestRejected:
                self.log.drop(planned)
                self._settings.tell(f"batch {batch.id}: its files have expired, its requests are sent again")
                return None
            lines |= {reply.custom_id: reply for reply in replies if isinstance(reply.custom_id, str)}
        self.log.note(planned, has_ended=1)
        self._refusals = 0
        return _Replies(batch=batch.id, was_cancelled=batch.status == "cancelled", lines=lines)

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Retry a free call until it gets an answer."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await call()
            except (JudgeUnavailable, JudgeTimeout):
                await self._sleep(self._settings.poll_s)
        return await call()


def _promise() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


class _Waiting(NamedTuple):
    """A request to send, as a line of a batch's file, and the future of its caller."""

    id: str
    line: bytes
    placed: asyncio.Future[_Planned | _Failure | None]

    def resolve(self, placed: _Planned | _Failure | None) -> None:
        """Resolve the caller's future unless it was cancelled."""
        if not self.placed.done():
            self.placed.set_result(placed)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a whole batch has no replies. Each waiting call raises its own error from it."""

    kind: type[JudgeError]
    message: str

    @classmethod
    def of(cls, exc: JudgeError) -> _Failure:
        """Keep the error's type, except for ``JudgeUnavailable``."""
        return cls(JudgeTimeout if isinstance(exc, JudgeUnavailable) else type(exc), str(exc))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replies:
    batch: str
    was_cancelled: bool
    lines: Mapping[str, JsonObject]
    """Lines of the reply files, by request."""

    def reply_to(self, request: str, *, who: str, call: JudgeCall) -> Any:
        """Return the JSON of a reply, and record the request's outcome in ``call``.

        Raises:
            RequestRejected: the endpoint rejected the request with 400 or 422.
            JudgeError: there is no reply.
        """
        line = self.lines.get(request, JsonObject())
        response = line.response
        if isinstance(response, JsonObject) and isinstance(response.status_code, int):
            if response.status_code >= 400:
                raise_rejection(RequestRejected(response.status_code, response.body), who=who, call=call)
            check_error_within(response.body, who=who, call=call)
            return response.body
        call.turned_down()
        if self.was_cancelled:
            raise JudgeRefused(f"{who}: the batch {self.batch} was cancelled there", usage=call.usage)
        expired = isinstance(line.error, JsonObject) and line.error.code == "batch_expired"
        what = "the batch expired before it was answered" if expired else "the batch has no reply to it"
        raise JudgeUnavailable(f"{who}: {what}", usage=call.usage)


_Outcome: TypeAlias = _Replies | _Failure | None
"""The outcome of a batch; ``None`` if its requests must be sent again."""


class QueueFull(Exception):
    """The account's limit of enqueued batch tokens is reached."""


def _faults(batch: JsonObject) -> list[JsonObject]:
    """Return what the provider says is wrong with a batch's file."""
    listed = batch.errors.data if isinstance(batch.errors, JsonObject) else None
    return [each for each in listed or () if isinstance(each, JsonObject) and each.code]


def _progress(batch: JsonObject) -> str:
    """Describe the progress of a batch for people."""
    counts = batch.request_counts
    if not isinstance(counts, JsonObject) or not counts.total:
        return str(batch.status)
    return f"{batch.status}, {counts.completed} of {counts.total} done"


class BatchApi:
    """Files and batches of one endpoint (https://platform.openai.com/docs/api-reference/batch)."""

    def __init__(self, access: Access, *, who: str, timeout_s: float = _TRANSFER_TIMEOUT_S) -> None:
        """``who`` is the judge and its endpoint, for error messages; ``timeout_s`` is for one transfer.

        Raises:
            ConfigError: the environment's proxy cannot be used.
        """
        self.who = who
        self._endpoint = Endpoint(access, timeout_s=timeout_s, who=who)
        # for replies of the size of a file
        self._downloads = Endpoint(access, timeout_s=timeout_s, who=who, most_bytes=_MOST_RESULTS_BYTES)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()
        await self._downloads.aclose()

    async def upload(self, lines: bytes) -> str:
        """Upload a file of requests; return its id.

        Raises:
            JudgeError: the upload failed.
        """
        file = ("ragtrace.jsonl", lines, "application/jsonl")
        uploaded = await self._named(
            "/files", lambda client: client.files.with_raw_response.create(file=file, purpose="batch")
        )
        return str(uploaded.id)

    async def create(self, file_id: str, key: str) -> JsonObject:
        """Create a batch from an uploaded file.

        Raises:
            QueueFull: the account's queue of batches is full.
            JudgeError: not created; after ``JudgeUnavailable`` and ``JudgeTimeout`` it may exist.
        """
        return await self._named(
            "/batches",
            lambda client: client.batches.with_raw_response.create(
                input_file_id=file_id, endpoint=_ROUTE, completion_window="24h", metadata={_OUR_KEY: key}
            ),
        )

    async def retrieve(self, batch_id: str) -> JsonObject:
        """Fetch the state of a batch.

        Raises:
            JudgeError: the request failed.
        """
        return await self._named(
            f"/batches/{batch_id}", lambda client: client.batches.with_raw_response.retrieve(batch_id)
        )

    async def find(self, *, file_id: str, key: str, since_s: int) -> JsonObject | None:
        """Find the batch with this file or this key among those created since ``since_s``.

        Raises:
            JudgeError: the request failed.
        """
        after: Mapping[str, Any] = {}
        while True:
            content = await self._fetch(
                "/batches",
                lambda client, after=after: client.batches.with_raw_response.list(limit=_PAGE, **after),  # type: ignore[misc]
                by=self._endpoint,
            )
            page = _object_of(content)
            listed = page.data if page is not None else None
            if page is None or not isinstance(listed, list) or not all(map(_is_named, listed)):
                raise JudgeNonsense(f"{self.who}: the reply is no list of batches", usage=_NOTHING)
            for batch in listed:
                told = batch.metadata.get(_OUR_KEY) if isinstance(batch.metadata, JsonObject) else None
                if batch.input_file_id == file_id or told == key:
                    return JsonObject(batch)
            # the newest come first
            if not page.has_more or not listed or (listed[-1].created_at or 0) < since_s:
                return None
            after = {"after": listed[-1].id}

    async def lines(self, file_id: str) -> Sequence[JsonObject]:
        """Download a file of replies. Lines that are no JSON object are skipped.

        Raises:
            JudgeError: the request failed.
            RequestRejected: 404, the file has expired.
        """
        content = await self._fetch(
            f"/files/{file_id}/content",
            lambda client: client.files.with_raw_response.content(file_id),
            by=self._downloads,
        )
        # line by line: a file of nothing but line breaks would make a huge list
        read = (_object_of(line) for line in BytesIO(content))
        return [line for line in read if line is not None]

    async def _named(self, path: str, send: Callable[[Any], Awaitable[Any]]) -> JsonObject:
        document = _object_of(await self._fetch(path, send, by=self._endpoint))
        if document is None or not _is_named(document):
            raise JudgeNonsense(f"{self.who}: {path} answers no object with an id", usage=_NOTHING)
        return document

    async def _fetch(self, path: str, send: Callable[[Any], Awaitable[Any]], *, by: Endpoint) -> bytes:
        try:
            response = await by.fetch(send, JudgeCall(asked=_TRANSFER, usage=_NOTHING))
        except RequestRejected as rejected:
            if path.startswith("/files/") and rejected.status == 404:
                raise
            raise self._failure(rejected, path) from None
        return bytes(response.content)

    def _failure(self, rejected: RequestRejected, path: str) -> JudgeError | QueueFull:
        if path == "/batches" and rejected.status == 429 and rejected.code != "insufficient_quota":
            return QueueFull()
        if path == "/files" and rejected.status in (404, 405, 501):
            advice = f"it has no Batch API ({rejected.what}): leave out --batch"
        elif path.startswith("/batches/") and rejected.status == 404:
            advice = f"it does not know the batch {path.rpartition('/')[2]}: use the API key that sent it"
        elif rejected.is_adaptable:
            advice = f"it rejects the batch ({rejected.what})"
        else:
            return rejected.failure(who=self.who, usage=_NOTHING)
        return JudgeRefused(f"{self.who}: {advice}", usage=_NOTHING)


def _object_of(line: bytes) -> JsonObject | None:
    try:
        value = json.loads(line, object_hook=JsonObject)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, JsonObject) else None


def _is_named(value: object) -> bool:
    return isinstance(value, JsonObject) and isinstance(value.id, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A batch, recorded before it is sent."""

    key: str
    """Our key, also in the batch's metadata."""
    planned_at_s: int
    file_id: str | None = None
    """The provider's id of the uploaded requests; ``None`` before."""
    batch_id: str | None = None
    """The provider's id of the batch; ``None`` until the creation is confirmed."""


class BatchLog:
    """The planned batches of one judge, and their requests. One process at a time uses the file.

    It holds digests and ids, no content: the provider keeps replies until they are downloaded. Methods that
    write raise ``JudgeRefused`` if that fails: no request is paid for without a record.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        """Open the file (readable by its owner only).

        Raises:
            ConfigError: it cannot be used.
        """
        self._path = path
        self._clock = clock or SystemClock()
        self._taken: list[tuple[str]] = []
        try:
            self._db = open_private(path, _FORM, is_transactional=True)
        except OSError as exc:
            hint = "another back-fill is using it" if is_busy(exc) else exc
            raise ConfigError(f"the list of batches {str(path)!r} cannot be used: {hint}") from exc
        self._write("DELETE FROM batch WHERE planned_at_s < ?", (self._now_s() - _KEPT_S,))

    def batch_of(self, request: str) -> _Planned | None:
        """Return the batch that a request is in."""
        row = self._db.execute(
            "SELECT key, planned_at_s, file_id, batch_id FROM batch"
            " WHERE key = (SELECT batch FROM request WHERE id = ?)",
            (request,),
        ).fetchone()
        return row and _Planned(key=row[0], planned_at_s=row[1], file_id=row[2], batch_id=row[3])

    def plan(self, requests: Sequence[str]) -> _Planned:
        """Record that these requests are about to be sent."""
        planned = _Planned(key=uuid4().hex, planned_at_s=self._now_s())
        with self._writing():
            self._db.execute(
                "INSERT INTO batch (key, planned_at_s) VALUES (?, ?)", (planned.key, planned.planned_at_s)
            )
            rows = [(request, planned.key) for request in requests]
            self._db.executemany("INSERT INTO request (id, batch) VALUES (?, ?)", rows)
        return planned

    def note(self, planned: _Planned, **columns: str | int) -> _Planned:
        """Record ``file_id``, ``batch_id`` or ``has_ended`` of a batch."""
        for column, value in columns.items():
            self._write(f"UPDATE batch SET {column} = ? WHERE key = ?", (value, planned.key))
        ids: dict[str, Any] = {name: value for name, value in columns.items() if name != "has_ended"}
        return replace(planned, **ids)

    def drop(self, planned: _Planned) -> int:
        """Delete a batch that the provider rejected or no longer has. Return the number of its requests,
        which must be sent again."""
        with self._writing():
            dropped = self._db.execute("DELETE FROM request WHERE batch = ?", (planned.key,)).rowcount
            self._db.execute("DELETE FROM batch WHERE key = ?", (planned.key,))
        return dropped

    def take(self, request: str) -> None:
        """Remember that the caller has the reply to a request."""
        self._taken.append((request,))

    def forget(self) -> None:
        """Delete the requests whose replies this process delivered, then batches that are left empty; call it
        when a run has ended and its results are stored."""
        with self._writing():
            self._db.executemany("DELETE FROM request WHERE id = ?", self._taken)
            self._db.execute("DELETE FROM batch WHERE key NOT IN (SELECT batch FROM request)")
        self._taken.clear()

    def unfinished(self) -> tuple[int, int]:
        """Count the batches that are pending at the provider, and their requests."""
        row: tuple[int, int] = self._db.execute(
            "SELECT count(DISTINCT key), count(*) FROM batch JOIN request ON request.batch = key"
            " WHERE file_id IS NOT NULL AND NOT has_ended"
        ).fetchone()
        return row

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _write(self, statement: str, values: tuple[str | int, ...]) -> None:
        with self._writing():
            self._db.execute(statement, values)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._db:
                yield
        except sqlite3.Error as exc:
            what = f"the list of batches {str(self._path)!r} cannot be written: {exc}"
            raise JudgeRefused(what, usage=_NOTHING) from exc

    def _now_s(self) -> int:
        return self._clock.now_ns() // 1_000_000_000
