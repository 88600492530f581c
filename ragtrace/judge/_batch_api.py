"""OpenAI's Batch API: a file of requests goes up, is worked on within a day, and files of replies come down.

https://platform.openai.com/docs/api-reference/batch
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from ragtrace.errors import JudgeError, JudgeNonsense, JudgeRefused
from ragtrace.judge._endpoint import Endpoint, JsonObject, RequestRejected
from ragtrace.judge.calls import CallRequest, JudgeCall
from ragtrace.model import Usage

if TYPE_CHECKING:
    from aiohttp.payload import Payload


ROUTE: Final = "/v1/chat/completions"
OUR_KEY: Final = "ragtrace_batch"
"""In a batch's metadata."""
_ENDED: Final = ("completed", "failed", "expired", "cancelled")
_QUEUE_FULL: Final = "token_limit_exceeded"
_NOTHING: Final = Usage()
_TRANSFER: Final = CallRequest(body={}, document=b"", output_tokens=0)
"""Files that go up and down, and looks at a batch: they cost nothing, and are no requests to a model."""
_PAGE: Final = 100
_MOST_RESULTS_BYTES: Final = 512 << 20
"""Of one file of replies: 50,000, the most in a batch, of 10 kB each."""


class QueueFull(Exception):
    """The account has as many tokens in batches as it may have."""


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
    """A batch, as the provider tells of it."""

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
        """Whether nothing more comes."""
        return self.status in _ENDED

    @property
    def met_a_full_queue(self) -> bool:
        """Whether it was turned down for the tokens that are waiting already."""
        return self.status == "failed" and any(fault.code == _QUEUE_FULL for fault in self._faults)

    @property
    def progress(self) -> str:
        """Say for people how far it is."""
        counts = self.request_counts
        if counts is None or not counts.total:
            return self.status
        failed = f", {counts.failed} failed" if counts.failed else ""
        return f"{self.status}, {counts.completed} of {counts.total} done{failed}"

    @property
    def complaint(self) -> str:
        """Say what was wrong with its file: codes and lines, as a message may quote a prompt."""
        told = [
            f"{fault.code}{f' (line {fault.line})' if fault.line else ''}"
            for fault in self._faults
            if fault.code
        ]
        return ", ".join(told[:3]) or "no reason was given"

    @property
    def _faults(self) -> list[_Fault]:
        return (self.errors and self.errors.data) or []


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchApi:
    """Files and batches of one endpoint."""

    endpoint: Endpoint
    who: str
    """For errors: the judge and where it is."""

    async def upload(self, lines: bytes) -> str:
        """Upload a file of requests; return its id.

        Raises:
            JudgeError: it was not taken.
        """
        form = _form(lines)
        told = await self._json("POST", "/files", data=form, headers={"content-type": form.content_type})
        if not isinstance(told.id, str):
            raise JudgeNonsense(f"{self.who}: the reply to an uploaded file has no id", usage=_NOTHING)
        return told.id

    async def create(self, file_id: str, key: str) -> Batch:
        """Have a file's requests worked on.

        Raises:
            QueueFull: not now.
            JudgeError: it was not created; after ``JudgeUnavailable`` and ``JudgeTimeout`` it may have been.
        """
        wanted = {
            "input_file_id": file_id,
            "endpoint": ROUTE,
            "completion_window": "24h",
            "metadata": {OUR_KEY: key},
        }
        return self._batch(await self._json("POST", "/batches", data=json.dumps(wanted).encode()))

    async def retrieve(self, batch_id: str) -> Batch:
        """Ask how a batch stands.

        Raises:
            JudgeError: no answer.
        """
        return self._batch(await self._json("GET", f"/batches/{batch_id}"))

    async def find(self, *, file_id: str, key: str, since_s: int) -> Batch | None:
        """Look for the batch of a file, or of our key, among those created since.

        Raises:
            JudgeError: no answer.
        """
        after = ""
        while True:
            page = await self._json("GET", f"/batches?limit={_PAGE}{after}")
            listed = [self._batch(each) for each in page.data or ()]
            for batch in listed:
                if batch.input_file_id == file_id or (batch.metadata or {}).get(OUR_KEY) == key:
                    return batch
            # the newest come first
            if not page.has_more or not listed or listed[-1].created_at < since_s:
                return None
            after = f"&after={listed[-1].id}"

    async def lines(self, file_id: str) -> Sequence[JsonObject]:
        """Download a file of replies; what is no JSON object in it is left out.

        Raises:
            JudgeError: no answer.
            Rejected: 404: it has expired.
        """
        content = await self._fetch("GET", f"/files/{file_id}/content", most_bytes=_MOST_RESULTS_BYTES)
        return [*_lines(content)]

    def _batch(self, told: Any) -> Batch:
        try:
            return Batch.model_validate(told)
        except ValidationError:
            raise JudgeNonsense(f"{self.who}: the reply is no batch", usage=_NOTHING) from None

    async def _json(
        self,
        method: str,
        path: str,
        *,
        data: bytes | Payload | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        reply = await self._fetch(method, path, data=data, headers=headers)
        try:
            told = json.loads(reply, object_hook=JsonObject)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, JsonObject):
            raise JudgeNonsense(f"{self.who}: {path} answers no JSON object", usage=_NOTHING)
        return told

    async def _fetch(
        self,
        method: str,
        path: str,
        *,
        data: bytes | Payload | None = None,
        headers: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> bytes:
        try:
            return await self.endpoint.fetch(
                method,
                path,
                data=data,
                headers=headers,
                call=JudgeCall(asked=_TRANSFER, usage=_NOTHING),
                most_bytes=most_bytes,
            )
        except RequestRejected as rejected:
            if path.startswith("/files/") and rejected.status == 404:
                raise
            raise self._failure(rejected, path) from None

    def _failure(self, rejected: RequestRejected, path: str) -> JudgeError | QueueFull:
        if path == "/batches" and rejected.status == 429 and rejected.code != "insufficient_quota":
            return QueueFull()
        if path == "/files" and rejected.status in (404, 405, 501):
            advice = f"it has no Batch API ({rejected.what}): leave --batch out"
            return JudgeRefused(f"{self.who}: {advice}", usage=_NOTHING)
        if path.startswith("/batches/") and rejected.status == 404:
            advice = (
                f"it does not know the batch {path.rpartition('/')[2]}: use the key that it was sent with"
            )
            return JudgeRefused(f"{self.who}: {advice}", usage=_NOTHING)
        if rejected.is_adaptable:
            advice = f"it does not take the batch ({rejected.what})"
            return JudgeRefused(f"{self.who}: {advice}", usage=_NOTHING)
        return rejected.failure(who=self.who, usage=_NOTHING)


def _form(lines: bytes) -> Payload:
    from aiohttp import FormData

    form = FormData({"purpose": "batch"})
    form.add_field("file", BytesIO(lines), filename="ragtrace.jsonl", content_type="application/jsonl")
    return form()


def _lines(content: bytes) -> Iterator[JsonObject]:
    for line in BytesIO(content):  # one at a time: a file of line breaks alone has too many
        try:
            told = json.loads(line, object_hook=JsonObject)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, JsonObject):
            yield told
