"""OpenAI's Batch API: upload a file of requests, download files of replies within a day.

https://platform.openai.com/docs/api-reference/batch
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ValidationError

from ragtrace.errors import JudgeError, JudgeNonsense, JudgeRefused
from ragtrace.judge.calls import CallRequest, JudgeCall
from ragtrace.judge.openai._client import Access
from ragtrace.judge.openai._endpoint import Endpoint, JsonObject, RequestRejected
from ragtrace.model import Usage

if TYPE_CHECKING:
    import openai


Sending: TypeAlias = "Callable[[openai.AsyncOpenAI], Awaitable[Any]]"
"""Makes a request by a raw method of the SDK, whose response has ``content``."""

ROUTE: Final[Literal["/v1/chat/completions"]] = "/v1/chat/completions"
OUR_KEY: Final = "ragtrace_batch"
"""The name of our key in a batch's metadata."""
_ENDED: Final = ("completed", "failed", "expired", "cancelled")
_QUEUE_FULL: Final = "token_limit_exceeded"
_NOTHING: Final = Usage()
_TRANSFER: Final = CallRequest(body={}, document=b"", output_tokens=0)
"""File transfers and status requests are free and use no tokens."""
_PAGE: Final = 100
_MOST_RESULTS_BYTES: Final = 512 << 20
"""The size limit of one file of replies: 50,000 replies (the limit of a batch) of 10 kB each."""


class QueueFull(Exception):
    """The account's limit of enqueued batch tokens is reached."""


class _Fault(BaseModel):
    code: str | None = None
    line: int | None = None


class _Faults(BaseModel):
    data: list[_Fault] | None = None


class _Counts(BaseModel):
    total: int = 0
    completed: int = 0
    failed: int = 0


class Batch(BaseModel):
    """A batch, as the provider describes it."""

    id: str
    status: str
    input_file_id: str | None = None
    created_at: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: _Faults | None = None
    request_counts: _Counts | None = None
    metadata: dict[str, str] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the batch has reached a final status."""
        return self.status in _ENDED

    @property
    def met_a_full_queue(self) -> bool:
        """Whether the provider rejected the batch because too many tokens are enqueued."""
        return self.status == "failed" and any(fault.code == _QUEUE_FULL for fault in self._faults)

    @property
    def progress(self) -> str:
        """Describe the progress for people."""
        counts = self.request_counts
        if counts is None or not counts.total:
            return self.status
        failed = f", {counts.failed} failed" if counts.failed else ""
        return f"{self.status}, {counts.completed} of {counts.total} done{failed}"

    @property
    def complaint(self) -> str:
        """List the faults of its file by code and line; their messages may quote a prompt."""
        faults = [
            f"{fault.code}{f' (line {fault.line})' if fault.line else ''}"
            for fault in self._faults
            if fault.code
        ]
        return ", ".join(faults[:3]) or "no reason was given"

    @property
    def _faults(self) -> list[_Fault]:
        return (self.errors and self.errors.data) or []


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchApi:
    """Files and batches of one endpoint."""

    endpoint: Endpoint
    downloads: Endpoint
    """The same endpoint, for replies of the size of a file."""
    who: str
    """The judge and its endpoint, for error messages."""

    @classmethod
    def of(cls, access: Access, *, who: str, timeout_s: float) -> BatchApi:
        """Open the API of an endpoint. ``timeout_s`` is for one transfer.

        Raises:
            ConfigError: the environment's proxy cannot be used.
        """
        return cls(
            endpoint=Endpoint(access, timeout_s=timeout_s, who=who),
            downloads=Endpoint(access, timeout_s=timeout_s, who=who, most_bytes=_MOST_RESULTS_BYTES),
            who=who,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self.endpoint.aclose()
        await self.downloads.aclose()

    async def upload(self, lines: bytes) -> str:
        """Upload a file of requests; return its id.

        Raises:
            JudgeError: the upload failed.
        """
        file = ("ragtrace.jsonl", lines, "application/jsonl")
        uploaded = await self._json(
            "/files", lambda client: client.files.with_raw_response.create(file=file, purpose="batch")
        )
        if not isinstance(uploaded.id, str):
            raise JudgeNonsense(f"{self.who}: the reply to an uploaded file has no id", usage=_NOTHING)
        return uploaded.id

    async def create(self, file_id: str, key: str) -> Batch:
        """Create a batch from an uploaded file.

        Raises:
            QueueFull: the account's queue of batches is full.
            JudgeError: not created; after ``JudgeUnavailable`` and ``JudgeTimeout`` it may exist.
        """
        created = await self._json(
            "/batches",
            lambda client: client.batches.with_raw_response.create(
                input_file_id=file_id, endpoint=ROUTE, completion_window="24h", metadata={OUR_KEY: key}
            ),
        )
        return self._batch(created)

    async def retrieve(self, batch_id: str) -> Batch:
        """Fetch the state of a batch.

        Raises:
            JudgeError: the request failed.
        """
        found = await self._json(
            f"/batches/{batch_id}", lambda client: client.batches.with_raw_response.retrieve(batch_id)
        )
        return self._batch(found)

    async def find(self, *, file_id: str, key: str, since_s: int) -> Batch | None:
        """Find the batch with this file or this key among those created since ``since_s``.

        Raises:
            JudgeError: the request failed.
        """
        after: Mapping[str, Any] = {}
        while True:
            page = await self._json("/batches", partial(_listed, after=after))
            listed = [self._batch(item) for item in page.data or ()]
            for batch in listed:
                if batch.input_file_id == file_id or (batch.metadata or {}).get(OUR_KEY) == key:
                    return batch
            # the newest come first
            if not page.has_more or not listed or listed[-1].created_at < since_s:
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
            by=self.downloads,
        )
        return [*_lines(content)]

    def _batch(self, value: Any) -> Batch:
        try:
            return Batch.model_validate(value)
        except ValidationError:
            raise JudgeNonsense(f"{self.who}: the reply is no batch", usage=_NOTHING) from None

    async def _json(self, path: str, send: Sending) -> JsonObject:
        reply = await self._fetch(path, send, by=self.endpoint)
        try:
            document = json.loads(reply, object_hook=JsonObject)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, JsonObject):
            raise JudgeNonsense(f"{self.who}: {path} answers no JSON object", usage=_NOTHING)
        return document

    async def _fetch(self, path: str, send: Sending, *, by: Endpoint) -> bytes:
        async def sent(client: openai.AsyncOpenAI) -> bytes:
            response: bytes = (await send(client)).content
            return response

        try:
            return await by.fetch(sent, JudgeCall(asked=_TRANSFER, usage=_NOTHING))
        except RequestRejected as rejected:
            if path.startswith("/files/") and rejected.status == 404:
                raise
            raise self._failure(rejected, path) from None

    def _failure(self, rejected: RequestRejected, path: str) -> JudgeError | QueueFull:
        if path == "/batches" and rejected.status == 429 and rejected.code != "insufficient_quota":
            return QueueFull()
        if path == "/files" and rejected.status in (404, 405, 501):
            advice = f"it has no Batch API ({rejected.what}): leave out --batch"
            return JudgeRefused(f"{self.who}: {advice}", usage=_NOTHING)
        if path.startswith("/batches/") and rejected.status == 404:
            advice = f"it does not know the batch {path.rpartition('/')[2]}: use the API key that sent it"
            return JudgeRefused(f"{self.who}: {advice}", usage=_NOTHING)
        if rejected.is_adaptable:
            advice = f"it rejects the batch ({rejected.what})"
            return JudgeRefused(f"{self.who}: {advice}", usage=_NOTHING)
        return rejected.failure(who=self.who, usage=_NOTHING)


def _listed(client: openai.AsyncOpenAI, after: Mapping[str, Any]) -> Awaitable[Any]:
    return client.batches.with_raw_response.list(limit=_PAGE, **after)


def _lines(content: bytes) -> Iterator[JsonObject]:
    for line in BytesIO(content):  # line by line: a file of nothing but line breaks would make a huge list
        try:
            value = json.loads(line, object_hook=JsonObject)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, JsonObject):
            yield value
