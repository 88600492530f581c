"""OpenAI's Batch API without a model behind it: files and batches over real HTTP, answered by a rule.

What is charged is counted by the request's body, so that what is asked twice shows, whatever its id. A test
may have it fail, lose an answer on its way, or strike whoever asks, at each single request it gets.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

from tests.backends.answering import Reply, answering

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = tuple[int, Any]

_LOST: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a request gets instead of its answer."""

    status: int = _LOST
    """Without one, what was asked is done, and the line cut before it is answered."""
    body: Any = None


@dataclass
class BatchServer:
    """Its files, batches and account."""

    model: Callable[[Mapping[str, Any]], Answer]
    """Answers the body of one request; what is answered by 200 is charged."""
    url: str = ""
    polls: int = 1
    """A batch has ended when it was looked at so often; what is lower than 1 never comes."""
    ends_as: str = "completed"
    done_share: float = 1.0
    """Of the requests of a batch; the others expire or are cancelled."""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    """By route: what the next requests to it get."""
    validate: Callable[[list[Json]], str | None] = lambda _lines: None
    """Returns the code of what is wrong with a file's lines."""
    on_request: Callable[[int, str, str], object] = lambda _number, _route, _moment: None
    """Is told of each request as it comes (``before``) and is done but not answered (``after``). What is not
    ``None`` cuts the line."""
    keeps_files: bool = True
    charged: Counter[str] = field(default_factory=Counter)
    batches: dict[str, Json] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exports: list[bytes] = field(default_factory=list)
    """It takes OTLP, too: what was sent to it."""
    routes: list[str] = field(default_factory=list)
    """Of the requests that came."""
    _looked: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def sizes(self) -> list[int]:
        return [len(self._lines(batch["input_file_id"])) for batch in self.batches.values()]

    def handle(self, method: str, path: str, body: bytes) -> Answer | None:
        """Answer a request, or cut the line."""
        with self._lock:
            route = _route(method, path)
            number = len(self.routes)
            self.routes.append(route)
            if self.on_request(number, route, "before") is not None:
                return None
            fault = self.faults[route].pop(0) if self.faults.get(route) else None
            if fault is not None and fault.status != _LOST:
                return fault.status, fault.body
            answer = self._done(route, path, body)
            is_cut = self.on_request(number, route, "after") is not None
            return None if fault or is_cut else answer

    def _done(self, route: str, path: str, body: bytes) -> Answer:
        match route:
            case "upload":
                return 200, {"id": self._keep(_file_in(body)), "object": "file", "purpose": "batch"}
            case "create":
                return 200, self._create(json.loads(body))
            case "list":
                return 200, {"object": "list", "data": [*self.batches.values()][::-1], "has_more": False}
            case "retrieve":
                return self._retrieve(path.rpartition("/")[2])
            case "content":
                found = self.files.get(path.split("/")[3]) if self.keeps_files else None
                return (200, found) if found is not None else (404, {"error": {"code": None}})
            case "export":
                self.exports.append(body)
                return 200, b""
        return 404, {"error": {"code": "unknown_url"}}

    def _keep(self, content: bytes) -> str:
        name = f"file-{next(self._numbers)}"
        self.files[name] = content
        return name

    def _create(self, wanted: Json) -> Json:
        assert wanted["endpoint"] == "/v1/chat/completions"
        assert wanted["completion_window"] == "24h"
        batch = {
            **wanted,
            "id": f"batch_{next(self._numbers)}",
            "object": "batch",
            "created_at": int(time.time()),
            "status": "validating",
        }
        self.batches[batch["id"]] = batch
        lines = self._lines(batch["input_file_id"])
        if code := self.validate(lines):
            error = {"code": code, "message": "SECRET PROMPT", "line": 1, "param": None}
            batch["errors"] = {"object": "list", "data": [error]}
        else:
            self._carry_out(batch, lines)
        return dict(batch)

    def _carry_out(self, batch: Json, lines: list[Json]) -> None:
        ids = [line["custom_id"] for line in lines]
        assert len({*ids}) == len(ids)
        done = round(len(lines) * self.done_share)
        replies = [self._reply(line) for line in lines[:done]] + [_undone(line) for line in lines[done:]]
        good = [reply for reply in replies if (reply["response"] or {}).get("status_code") == 200]
        bad = [reply for reply in replies if reply not in good]
        # the order of the output is not that of the input
        batch["output_file_id"] = self._keep(_jsonl(good[::-1])) if good else None
        batch["error_file_id"] = self._keep(_jsonl(bad)) if bad else None
        batch["request_counts"] = {"total": len(lines), "completed": len(good), "failed": len(bad)}

    def _reply(self, line: Json) -> Json:
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        status, body = self.model(line["body"])
        if status == 200:
            self.charged[json.dumps(line["body"], sort_keys=True)] += 1
        response = {"status_code": status, "request_id": "r", "body": body}
        return {"id": "x", "custom_id": line["custom_id"], "response": response, "error": None}

    def _retrieve(self, name: str) -> Answer:
        if name not in self.batches:
            return 404, {"error": {"code": None}}
        self._looked[name] += 1
        batch = dict(self.batches[name])
        has_ended = 0 < self.polls <= self._looked[name]
        if "errors" in batch:
            batch["status"] = "failed"
        elif has_ended:
            batch["status"] = self.ends_as
        else:
            hidden = ("output_file_id", "error_file_id")
            batch = {key: None if key in hidden else value for key, value in batch.items()}
            batch["status"] = "in_progress"
        return 200, batch

    def _lines(self, file_id: str) -> list[Json]:
        return [json.loads(line) for line in self.files[file_id].decode().splitlines()]


@contextmanager
def running_batch_server(model: Callable[[Mapping[str, Any]], Answer]) -> Iterator[BatchServer]:
    """Serve on a free loopback port until the block ends."""
    served = BatchServer(model=model)

    def answer(method: str, path: str, body: bytes) -> Reply | None:
        answered = served.handle(method, path, body)
        if answered is None:
            return None
        status, told = answered
        return Reply(status, told if isinstance(told, bytes) else json.dumps(told).encode())

    with answering(answer) as url:
        served.url = f"{url}/v1"
        yield served


def _route(method: str, path: str) -> str:
    parts = path.removeprefix("/v1/").split("/")
    match (method, *parts):
        case ("POST", "files"):
            return "upload"
        case ("POST", "traces"):
            return "export"
        case ("POST", "batches"):
            return "create"
        case ("GET", "batches"):
            return "list"
        case ("GET", "batches", _):
            return "retrieve"
        case ("GET", "files", _, "content"):
            return "content"
    return "unknown"


def _file_in(form: bytes) -> bytes:
    boundary = form.partition(b"\r\n")[0]
    fields = [part.partition(b"\r\n\r\n") for part in form.split(boundary)[1:-1]]
    by_name = {head.lower().partition(b'name="')[2].partition(b'"')[0]: body for head, _, body in fields}
    assert by_name[b"purpose"].removesuffix(b"\r\n") == b"batch"
    return by_name[b"file"].removesuffix(b"\r\n")


def _undone(line: Json) -> Json:
    error = {"code": "batch_expired", "message": "not executed before the completion window expired"}
    return {"id": "x", "custom_id": line["custom_id"], "response": None, "error": error}


def _jsonl(lines: list[Json]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
