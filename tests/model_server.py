"""A model server without a model: the HTTP APIs of OpenAI, Anthropic and Bedrock, answered by a rule.

    python tests/model_server.py

prints its port and serves on loopback until it is ended. The same request always gets the same reply. Its
embeddings are near where texts share words. Its answer is the sentence of the prompt that is nearest to the
question, so that a RAG application's answers come from its chunks. Where tools are offered, the first one is
called with the question before it is answered; a question of two parts ("..., and ...?") is looked up twice.
Below the path ``/careless`` the same model doubles every number of its answers: what it says is wrong then.
Below ``/breaking`` the connection breaks in the middle of every streamed answer.

It needs nothing but the standard library: every environment runs it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSIONS = 256
UNKNOWN = "I do not know."
_CREATED = 1_760_000_000
_CARELESS = "/careless"
_BREAKING = "/breaking"
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do does for from has have how i in is it its me my of on or that "
        "the their them there this to was we what when where which who why will with you your",
    )
)
_DSPY_FIELD = "[[ ## answer ## ]]"
_DSPY_MARK = re.compile(r"\[\[ ## \w+ ## \]\]|\[\d+\] |[«»]")
_LABEL = re.compile(r"^(\[[^\]]*\]|[-*]|[A-Za-z][\w ]{0,20}:(?=\s))\s*")

Json = dict[str, Any]


@contextmanager
def running_model_server() -> Iterator[str]:
    """Serve on a free loopback port until the block ends, and give the URL without a path."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def model_environment(url: str, *, careless: bool = False) -> dict[str, str]:
    """Return the variables that point the SDKs of OpenAI and Anthropic to this server."""
    url = f"{url}{_CARELESS}" if careless else url
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "not-a-key",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "not-a-key",
    }


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolCall:
    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """What the model says to a request, whichever API asked."""

    id: str
    model: str
    text: str
    tool_call: _ToolCall | None
    input_tokens: int
    output_tokens: int

    @property
    def pieces(self) -> list[str]:
        return re.findall(r"\s*\S+", self.text)

    def usage(self, given: str, said: str) -> Json:
        return {given: self.input_tokens, said: self.output_tokens}


def _reply(request: Json, messages: Sequence[_Message], tools: Sequence[Json]) -> _Reply:
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    call = _tool_call(digest, messages, tools)
    text = "" if call else _answer(messages)
    if request.get(_CARELESS):
        text = re.sub(r"\d+", lambda number: str(2 * int(number[0])), text)
    said = json.dumps(call.arguments) if call else text
    return _Reply(
        id=digest[:24],
        model=request["model"],
        text=text,
        tool_call=call,
        input_tokens=sum(_tokens(message.text) for message in messages),
        output_tokens=_tokens(said),
    )


def _tool_call(digest: str, messages: Sequence[_Message], tools: Sequence[Json]) -> _ToolCall | None:
    parts = _parts(_question(messages))
    asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    results = sum(message.role == "tool" for message in messages[asked:])
    if not tools or results >= len(parts):
        return None
    schema = tools[0].get("parameters") or tools[0].get("input_schema") or {}
    return _ToolCall(
        id=f"call_{digest[24:40]}", name=tools[0]["name"], arguments=_arguments(schema, parts[results])
    )


def _arguments(schema: Json, query: str) -> Json:
    properties: Json = schema.get("properties") or {}
    texts = [name for name, of in properties.items() if of.get("type") == "string"]
    required = schema.get("required") or texts[:1]
    return {name: query if name in texts else 2 for name in required}


def _answer(messages: Sequence[_Message]) -> str:
    question = _question(messages)
    if any(_DSPY_FIELD in message.text for message in messages):
        said = _said([replace(each, text=_DSPY_MARK.sub("", each.text)) for each in messages], question)
        return f"{_DSPY_FIELD}\n{said}\n\n[[ ## completed ## ]]"
    return _said(messages, question)


def _said(messages: Sequence[_Message], question: str) -> str:
    if any("standalone question" in message.text.lower() for message in messages):
        return _standalone(messages, question)
    sentences = [sentence for message in messages for sentence in _sentences(message.text)]
    found = [_nearest(part, sentences) for part in _parts(question)]
    return " ".join(dict.fromkeys(sentence for sentence in found if sentence)) or UNKNOWN


def _question(messages: Sequence[_Message]) -> str:
    """Return the last question that the user asked, else the last line that the user wrote."""
    users = [message.text for message in messages if message.role == "user"]
    asked = [found for text in users for found in _questions(text)]
    lines = [line for text in users for line in text.splitlines() if line.strip()]
    return asked[-1] if asked else lines[-1] if lines else ""


def _questions(text: str) -> list[str]:
    found: list[str] = re.findall(r"[^.?!\n:]*\?", text)
    return [question.strip(" \"'") for question in found]


def _standalone(messages: Sequence[_Message], question: str) -> str:
    """Rewrite a follow-up question: what was asked before it says what it is about."""
    asked = [found for message in messages for found in _questions(message.text) if found != question]
    return f"{asked[-1]} {question}" if asked else question


def _parts(question: str) -> list[str]:
    parts = question.rstrip("?").split(", and ")
    return [f"{part.strip()}?" for part in parts]


def _nearest(question: str, sentences: Sequence[str]) -> str:
    asked = _embedding(question)
    candidates = [sentence for sentence in sentences if not sentence.endswith("?")]
    nearest = max(candidates, key=lambda sentence: _cosine(asked, _embedding(sentence)), default="")
    return nearest if nearest and _cosine(asked, _embedding(nearest)) > 0.1 else ""


def _sentences(text: str) -> list[str]:
    """Split a text, or the texts in JSON as tools return it, and leave out labels such as "[1]"."""
    try:
        texts = list(_strings(json.loads(text)))
    except ValueError:
        texts = [text]
    return [
        sentence
        for each in texts
        for sentence in (_LABEL.sub("", piece.strip()) for piece in re.split(r"(?<=[.?!])\s+|\n+", each))
        if len(sentence.split()) > 3
    ]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(member)


def _embedding(text: str) -> list[float]:
    """Return a unit vector: each word, by its first six letters, has a direction of its own."""
    vector = [0.0] * DIMENSIONS
    words = [word for word in re.findall(r"\w+", text.lower()) if word not in _STOP_WORDS]
    for word in words or [text]:
        stem = word.removesuffix("s")[:6].encode()
        for salt in range(3):
            vector[zlib.crc32(stem, salt) % DIMENSIONS] += 1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def _text(content: Any) -> str:
    """Return the text of a message's content: a string, or parts of any of the three APIs."""
    if isinstance(content, list):
        return "\n".join(_text(part) for part in content)
    if isinstance(content, dict):
        return _text(content.get("text", content.get("content", content.get("output", ""))))
    return str(content or "")


# --- OpenAI's embeddings


def embeddings(request: Json) -> Json:
    """Answer ``POST /v1/embeddings``."""
    given = request["input"]
    texts = [given] if isinstance(given, str) else given
    as_bytes = request.get("encoding_format") == "base64"
    tokens = sum(_tokens(str(text)) for text in texts)
    return {
        "object": "list",
        "model": request["model"],
        "data": [
            {"object": "embedding", "index": index, "embedding": _base64(vector) if as_bytes else vector}
            for index, vector in enumerate(_embedding(str(text)) for text in texts)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


# --- OpenAI's chat completions


def chat(request: Json) -> Json:
    """Answer ``POST /v1/chat/completions``."""
    reply = _chat_reply(request)
    message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.tool_call:
        message["tool_calls"] = [_chat_tool_call(reply.tool_call)]
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
        for index in range(request.get("n") or 1)
    ]
    return _chat_head(reply, "chat.completion") | {"choices": choices, "usage": _chat_usage(reply)}


def chat_stream(request: Json) -> Iterator[Json]:
    """Answer ``POST /v1/chat/completions`` with ``stream``."""
    reply = _chat_reply(request)
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in reply.pieces]
    if reply.tool_call:
        deltas += [{"tool_calls": [{"index": 0} | _chat_tool_call(reply.tool_call)]}]
    head = _chat_head(reply, "chat.completion.chunk")
    for delta in deltas:
        yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}]}
    if (request.get("stream_options") or {}).get("include_usage"):
        yield head | {"choices": [], "usage": _chat_usage(reply)}


def _chat_reply(request: Json) -> _Reply:
    messages = [_Message(each["role"], _text(each.get("content"))) for each in request["messages"]]
    return _reply(request, messages, [tool["function"] for tool in request.get("tools") or ()])


def _chat_head(reply: _Reply, kind: str) -> Json:
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": _CREATED, "model": reply.model}


def _chat_tool_call(call: _ToolCall) -> Json:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _chat_usage(reply: _Reply) -> Json:
    total = reply.input_tokens + reply.output_tokens
    return reply.usage("prompt_tokens", "completion_tokens") | {"total_tokens": total}


def _finish_reason(reply: _Reply) -> str:
    return "tool_calls" if reply.tool_call else "stop"


# --- OpenAI's responses


def responses(request: Json) -> Json:
    """Answer ``POST /v1/responses``."""
    reply = _responses_reply(request)
    return _response(request, reply, status="completed", output=[_output_item(reply)])


def responses_stream(request: Json) -> Iterator[Json]:
    """Answer ``POST /v1/responses`` with ``stream``."""
    for number, event in enumerate(_response_events(request, _responses_reply(request))):
        yield event | {"sequence_number": number}


def _response_events(request: Json, reply: _Reply) -> Iterator[Json]:
    started = _response(request, reply, status="in_progress", output=[])
    item = _output_item(reply)
    at = {"output_index": 0, "item_id": item["id"]}
    empty = {"arguments": ""} if reply.tool_call else {"content": []}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    opened = item | empty | {"status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": 0, "item": opened}
    if reply.tool_call:
        event, arguments = "response.function_call_arguments", {"arguments": item["arguments"]}
        yield {"type": f"{event}.delta", "delta": item["arguments"]} | at
        yield {"type": f"{event}.done", "name": reply.tool_call.name} | arguments | at
    else:
        part, at = item["content"][0], at | {"content_index": 0}
        yield {"type": "response.content_part.added", "part": part | {"text": ""}} | at
        for piece in reply.pieces:
            yield {"type": "response.output_text.delta", "delta": piece, "logprobs": []} | at
        yield {"type": "response.output_text.done", "text": reply.text, "logprobs": []} | at
        yield {"type": "response.content_part.done", "part": part} | at
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    done = _response(request, reply, status="completed", output=[item])
    yield {"type": "response.completed", "response": done}


def _responses_reply(request: Json) -> _Reply:
    given = request.get("input") or ""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    first = [_Message("system", request["instructions"])] if request.get("instructions") else []
    return _reply(request, first + [_response_message(item) for item in items], request.get("tools") or ())


def _response_message(item: Json) -> _Message:
    if item.get("type") == "function_call_output":
        return _Message("tool", _text(item["output"]))
    return _Message(item.get("role", "assistant"), _text(item.get("content")))


def _response(request: Json, reply: _Reply, *, status: str, output: list[Json]) -> Json:
    usage = reply.usage("input_tokens", "output_tokens") | {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    given = {"metadata": {}, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0}
    return {name: request.get(name) or usual for name, usual in given.items()} | {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "usage": usage if status == "completed" else None,
    }


def _output_item(reply: _Reply) -> Json:
    if call := reply.tool_call:
        item = {"type": "function_call", "id": f"fc_{reply.id}", "call_id": call.id, "name": call.name}
        return item | {"arguments": json.dumps(call.arguments), "status": "completed"}
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "content": [part]}
    return item | {"status": "completed"}


# --- Anthropic's messages


def messages(request: Json) -> Json:
    """Answer ``POST /v1/messages``."""
    reply = _messages_reply(request)
    return _message_head(reply) | {
        "content": [_content_block(reply)],
        "stop_reason": _stop_reason(reply),
        "usage": reply.usage("input_tokens", "output_tokens"),
    }


def messages_stream(request: Json) -> Iterator[Json]:
    """Answer ``POST /v1/messages`` with ``stream``."""
    reply = _messages_reply(request)
    usage = {"input_tokens": reply.input_tokens, "output_tokens": 1}
    yield {"type": "message_start", "message": _message_head(reply) | {"content": [], "usage": usage}}
    empty: Json = {"input": {}} if reply.tool_call else {"text": ""}
    yield {"type": "content_block_start", "index": 0, "content_block": _content_block(reply) | empty}
    deltas: list[Json] = [{"type": "text_delta", "text": piece} for piece in reply.pieces]
    if reply.tool_call:
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(reply.tool_call.arguments)}]
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stopped = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield {"type": "message_delta", "delta": stopped, "usage": {"output_tokens": reply.output_tokens}}
    yield {"type": "message_stop"}


def _messages_reply(request: Json) -> _Reply:
    system = _text(request.get("system"))
    said = [_Message("system", system)] if system else []
    said += [_anthropic_message(each) for each in request["messages"]]
    return _reply(request, said, request.get("tools") or ())


def _anthropic_message(message: Json) -> _Message:
    content = message["content"]
    blocks = content if isinstance(content, list) else []
    is_result = any(block.get("type") == "tool_result" for block in blocks)
    return _Message("tool" if is_result else message["role"], _text(content))


def _message_head(reply: _Reply) -> Json:
    head = {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "model": reply.model}
    return head | {"stop_reason": None, "stop_sequence": None}


def _content_block(reply: _Reply) -> Json:
    if call := reply.tool_call:
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
    return {"type": "text", "text": reply.text}


def _stop_reason(reply: _Reply) -> str:
    return "tool_use" if reply.tool_call else "end_turn"


# --- Bedrock's Converse


def converse(request: Json) -> Json:
    """Answer ``POST /model/MODEL/converse``."""
    said = [_Message("system", _text(request.get("system")))]
    said += [_Message(each["role"], _text(each["content"])) for each in request["messages"]]
    reply = _reply(request, said, ())
    total = {"totalTokens": reply.input_tokens + reply.output_tokens}
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": reply.text}]}},
        "stopReason": "end_turn",
        "usage": reply.usage("inputTokens", "outputTokens") | total,
        "metrics": {"latencyMs": 1},
    }


# --- HTTP

_CONVERSE = re.compile(r"/model/([^/]+)/converse")
_ANSWERS = {
    "/v1/embeddings": embeddings,
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
}
_STREAMS = {
    "/v1/chat/completions": chat_stream,
    "/v1/responses": responses_stream,
    "/v1/messages": messages_stream,
}


def _is_word(event: Json) -> bool:
    """Tell the events of a stream that hold a piece of the answer's text."""
    in_chat = any(choice["delta"].get("content") for choice in event.get("choices") or ())
    delta = event.get("delta")
    return (
        in_chat
        or event.get("type") == "response.output_text.delta"
        or (isinstance(delta, dict) and delta.get("type") == "text_delta")
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        model = {"id": "model", "object": "model", "created": _CREATED, "owned_by": "tests"}
        self._send(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = self.path.partition("?")[0]
        path = asked.removeprefix(_CARELESS).removeprefix(_BREAKING)
        if found := _CONVERSE.fullmatch(path):
            self._send(200, converse(json.loads(body) | {"model": found[1]}))
            return
        if path not in _ANSWERS:
            self._send(404, {"error": {"message": f"no such path: {path}", "type": "invalid_request_error"}})
            return
        request = json.loads(body) | ({_CARELESS: True} if asked.startswith(_CARELESS) else {})
        if request.get("stream"):
            events = list(_STREAMS[path](request))
            words = [at for at, event in enumerate(events) if _is_word(event)]
            is_breaking = asked.startswith(_BREAKING) and bool(words)
            self._stream(
                events[: words[len(words) // 2]] if is_breaking else events,
                is_chat=path == "/v1/chat/completions",
                is_breaking=is_breaking,
            )
        else:
            self._send(200, _ANSWERS[path](request))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Sequence[Json], *, is_chat: bool, is_breaking: bool) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        if is_breaking:
            self.send_header("content-length", "1000000")  # less comes: to a client, the connection broke
        self.end_headers()
        try:
            for event in events:
                name = "" if is_chat else f"event: {event['type']}\n"
                self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            if is_chat and not is_breaking:
                self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # who asked has heard enough


if __name__ == "__main__":
    with running_model_server() as url:
        print(url.rpartition(":")[2], flush=True)
        threading.Event().wait()
