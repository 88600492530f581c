"""The transport through batches: gathers requests, sends them, polls the batch and returns the replies.

A request is paid for once, even if the process crashes. Its content identifies it. `batch_log`
writes its batch to disk before the batch is created. If the id is lost, the batch is looked up at the
provider. A repeated request finds its batch, and waits for it or takes its reply.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

from ragtrace.errors import JudgeError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.http.retry import Backoff, Sleep
from ragtrace.judge._http import untraced
from ragtrace.judge.batch_settings import BatchSettings
from ragtrace.judge.calls import JudgeCall, document_of
from ragtrace.judge.openai._batch_api import ROUTE, Batch, BatchApi, QueueFull
from ragtrace.judge.openai._batch_log import BatchLog, PlannedBatch
from ragtrace.judge.openai._batch_outcome import BatchReplies, Failure, Outcome
from ragtrace.judge.openai._endpoint import JsonObject, RequestRejected
from ragtrace.model import Usage

T = TypeVar("T")

_LONGEST_QUIET_S: Final = 5.0
_ATTEMPTS: Final = 20
_LONGEST_PAUSE_S: Final = 900.0
_DRAWS_KNOWN: Final = 200_000
_ENDED_KEPT: Final = 4
_CLOCKS_DIFFER_S: Final = 3_600


class BatchLane:
    """A `Transport` that sends posted requests in batches and returns their replies.

    Only the failure of a single request is ``JudgeUnavailable``: a retry is a new request, which is paid for
    again.
    """

    def __init__(
        self, *, api: BatchApi, log: BatchLog, settings: BatchSettings, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.log = log
        self._api = api
        self._settings = settings
        self._sleep = sleep
        self._limiter = _SubmissionLimiter(settings, sleep)
        self._draws = lru_cache(_DRAWS_KNOWN)(lambda _digest: count())
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._held: deque[_Waiting] = deque()
        """Requests that did not fit into the last batch."""
        self._outcomes: OrderedDict[str, asyncio.Future[Outcome]] = OrderedDict()
        """The outcomes of pending batches, and of the last ones that ended."""
        self._promised: set[asyncio.Future[Any]] = set()
        self._work: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()

    async def post(self, path: str, call: JudgeCall) -> Any:
        """Send a request in a batch; return the JSON of its reply.

        Raises:
            RequestRejected: the endpoint rejected this request with 400 or 422.
            JudgeError: there is no reply.
        """
        assert f"/v1{path}" == ROUTE
        request = self._request(call.asked.body)
        await self._at_work()
        outcome = None
        while outcome is None:
            outcome = await self._outcome_of(request)
        if isinstance(outcome, Failure):
            call.stayed()  # nobody worked on its batch
            raise outcome.kind(outcome.message, usage=call.usage)
        self.log.take(request.id)
        return outcome.reply_to(request.id, who=self._api.who, call=call)

    async def aclose(self) -> None:
        """Stop polling. Batches continue at the provider."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
        self.log.close()
        await self._api.aclose()

    def _request(self, body: Mapping[str, Any]) -> _Request:
        # other parameters follow what was learned about the endpoint, which a crash forgets
        asked = document_of({"model": body["model"], "messages": body["messages"]})
        digest = hashlib.sha256(asked).hexdigest()[:40]
        # a repeated request gets a reply of its own, as from a live judge
        name = f"{digest}-{next(self._draws(digest))}"
        line = {"custom_id": name, "method": "POST", "url": ROUTE, "body": json.loads(document_of(body))}
        # ASCII: some line readers split at U+2028
        return _Request(id=name, line=json.dumps(line).encode() + b"\n")

    async def _outcome_of(self, request: _Request) -> Outcome:
        sent = self.log.batch_of(request.id) or await self._submitted(request)
        if not isinstance(sent, PlannedBatch):
            return sent
        return await asyncio.shield(self._followed(sent))

    async def _submitted(self, request: _Request) -> PlannedBatch | Failure | None:
        """Queue a request and wait until it is sent."""
        placed: asyncio.Future[PlannedBatch | Failure | None] = self._promise()
        self._queue.put_nowait(_Waiting(request, placed))
        return await placed

    def _promise(self) -> asyncio.Future[Any]:
        promised: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._promised.add(promised)
        promised.add_done_callback(self._promised.discard)
        return promised

    async def _at_work(self) -> None:
        if self._work is None:
            self._work = asyncio.create_task(self._run())
        if self._work.done():
            self._work.result()
        await self._is_ready.wait()

    async def _run(self) -> None:
        try:
            with untraced():
                async with asyncio.TaskGroup() as self._tasks:
                    self._is_ready.set()
                    while True:
                        group = await self._gathered()
                        await self._limiter.turn()
                        room = self._limiter.room
                        self._held.extendleft(reversed(group[room:]))
                        self._tasks.create_task(self._send(group[:room]))
        except BaseException as exc:
            for promise in [*self._promised]:  # nothing else would resolve them
                promise.cancel() if isinstance(exc, asyncio.CancelledError) else promise.set_exception(exc)
            raise

    async def _gathered(self) -> list[_Waiting]:
        """Collect requests until no new one arrives or the batch is full."""
        group: list[_Waiting] = []
        size = 0
        while len(group) < self._limiter.room:
            try:
                each = await self._next(min(_LONGEST_QUIET_S, self._settings.poll_s) if group else None)
            except TimeoutError:
                break
            size += len(each.request.line)
            if group and size > self._settings.most_bytes:
                self._held.appendleft(each)
                break
            group.append(each)
        return group

    async def _next(self, timeout_s: float | None) -> _Waiting:
        if self._held:
            return self._held.popleft()
        async with asyncio.timeout(timeout_s):
            return await self._queue.get()

    async def _send(self, group: Sequence[_Waiting]) -> None:
        placed: PlannedBatch | Failure | None = None
        try:
            group = [waiting for waiting in group if not waiting.placed.done()]
            if group:
                placed = await self._placed([waiting.request for waiting in group])
        finally:
            self._limiter.leave()
        for waiting in group:
            waiting.resolve(placed)

    async def _placed(self, requests: Sequence[_Request]) -> PlannedBatch | Failure | None:
        try:
            planned = self.log.plan([request.id for request in requests])
            planned = await self._created(planned, requests)
        except QueueFull:
            return self._refused(planned)
        except JudgeError as exc:
            return Failure.of(exc)
        self._settings.tell(f"batch {planned.batch_id}: {len(requests):,} requests sent")
        self._followed(planned)
        return planned

    async def _created(self, planned: PlannedBatch, requests: Sequence[_Request]) -> PlannedBatch:
        lines = b"".join(request.line for request in requests)
        try:
            file_id = await self._patiently(lambda: self._api.upload(lines))
        except JudgeRefused:
            self.log.drop(planned)
            raise
        planned = self.log.uploaded(planned, file_id)
        return self.log.created(planned, (await self._create(planned, file_id)).id)

    async def _create(self, planned: PlannedBatch, file_id: str) -> Batch:
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
        raise JudgeTimeout(f"{self._api.who}: {what}", usage=Usage())

    async def _found(self, planned: PlannedBatch) -> Batch | None:
        file_id = planned.file_id
        if file_id is None:  # without a file there is no batch
            return None
        since_s = planned.planned_at_s - _CLOCKS_DIFFER_S
        return await self._patiently(
            lambda: self._api.find(file_id=file_id, key=planned.key, since_s=since_s)
        )

    def _refused(self, planned: PlannedBatch) -> Failure | None:
        """Schedule the batch's requests again in smaller batches, up to the limit of tries."""
        self._limiter.refuse(self.log.drop(planned))
        if self._limiter.refusals < _ATTEMPTS:
            self._settings.tell("the provider's queue of batches is full: smaller ones follow, one at a time")
            return None
        what = "its queue of batches stays full (limit of enqueued tokens): run it again later"
        failure = Failure(JudgeTimeout, f"{self._api.who}: {what}")
        while self._held or not self._queue.empty():  # every one of them would wait as long
            (self._held.popleft() if self._held else self._queue.get_nowait()).resolve(failure)
        return failure

    def _followed(self, planned: PlannedBatch) -> asyncio.Future[Outcome]:
        outcome = self._outcomes.get(planned.key)
        if outcome is None:
            outcome = self._outcomes[planned.key] = self._promise()
            self._limiter.enter()
            self._tasks.create_task(self._follow(planned, outcome))
        return outcome

    async def _follow(self, planned: PlannedBatch, outcome: asyncio.Future[Outcome]) -> None:
        try:
            ended = await self._ended(planned)
        except JudgeError as exc:
            ended = Failure.of(exc)
        finally:
            self._limiter.leave()
        outcome.set_result(ended)
        if not isinstance(ended, BatchReplies):
            del self._outcomes[planned.key]
        done = [key for key, each in self._outcomes.items() if each.done()]
        for key in done[:-_ENDED_KEPT]:
            del self._outcomes[key]

    async def _ended(self, planned: PlannedBatch) -> Outcome:
        """Wait for a batch to end; ``None`` if its requests must be sent again."""
        batch_id = planned.batch_id
        if batch_id is None:
            found = await self._found(planned)
            if found is None:
                self.log.drop(planned)
                return None
            batch_id = self.log.created(planned, found.id).batch_id
            assert batch_id is not None
        batch = await self._settled(batch_id)
        if batch.met_a_full_queue:
            return self._refused(planned)
        if batch.status == "failed":
            self.log.drop(planned)
            what = f"the batch {batch_id} was turned down: {batch.complaint}"
            return Failure(JudgeRefused, f"{self._api.who}: {what}")
        return await self._answers(planned, batch)

    async def _settled(self, batch_id: str) -> Batch:
        last_status = ""
        while True:
            batch = await self._patiently(lambda: self._api.retrieve(batch_id))
            if batch.status != last_status:
                self._settings.tell(f"batch {batch_id}: {batch.progress}")
                last_status = batch.status
            if batch.has_ended:
                return batch
            await self._sleep(self._settings.poll_s)

    async def _answers(self, planned: PlannedBatch, batch: Batch) -> Outcome:
        lines: dict[str, JsonObject] = {}
        for file_id in (batch.error_file_id, batch.output_file_id):
            try:
                replies = await self._lines(file_id) if file_id else ()
            except RequestRejected:
                self.log.drop(planned)
                self._settings.tell(f"batch {batch.id}: its files have expired, its requests are sent again")
                return None
            lines |= {reply.custom_id: reply for reply in replies if isinstance(reply.custom_id, str)}
        self.log.ended(planned)
        self._limiter.ease()
        return BatchReplies(batch=batch.id, was_cancelled=batch.status == "cancelled", lines=lines)

    async def _lines(self, file_id: str) -> Sequence[JsonObject]:
        return await self._patiently(lambda: self._api.lines(file_id))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Retry a free call until it gets an answer."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await call()
            except (JudgeUnavailable, JudgeTimeout):
                await self._sleep(self._settings.poll_s)
        return await call()


class _SubmissionLimiter:
    """Limits what is sent at once: after the provider's queue was full, half as much, one batch at a time."""

    def __init__(self, settings: BatchSettings, sleep: Sleep) -> None:
        self.room = settings.most_requests
        """The limit of requests per batch."""
        self.refusals = 0
        """Refusals since the last batch that succeeded."""
        self._backoff = Backoff(first_wait_s=settings.poll_s, longest_wait_s=_LONGEST_PAUSE_S)
        self._sleep = sleep
        self._was_full = False
        self._under_way = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def turn(self) -> None:
        """Wait until another batch may be sent, and count it."""
        if self._was_full:
            await self._is_idle.wait()
        if self.refusals:
            await self._sleep(self._backoff.own_wait_s(self.refusals - 1))
        self.enter()

    def enter(self) -> None:
        """Count a pending batch."""
        self._under_way += 1
        self._is_idle.clear()

    def leave(self) -> None:
        """Stop counting a batch."""
        self._under_way -= 1
        if not self._under_way:
            self._is_idle.set()

    def refuse(self, requests: int) -> None:
        """Lower the limit after a batch of this size was refused."""
        self.room = max(1, min(self.room, requests) // 2)
        self.refusals += 1
        self._was_full = True

    def ease(self) -> None:
        """Note that a batch succeeded."""
        self.refusals = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A line of a batch's file."""

    id: str
    line: bytes


class _Waiting(NamedTuple):
    """A request to send, and the future of its caller."""

    request: _Request
    placed: asyncio.Future[PlannedBatch | Failure | None]

    def resolve(self, placed: PlannedBatch | Failure | None) -> None:
        """Resolve the caller's future unless it was cancelled."""
        if not self.placed.done():
            self.placed.set_result(placed)
