"""Values that fight back: nothing raises into the application, nothing hangs, the rest is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

import ragtrace


class Failing(Exception):
    pass


def fail(*args: Any, **kwargs: Any) -> Any:
    raise Failing("secret")


class Hostile:
    """Raises wherever it is touched."""

    __str__ = __repr__ = __len__ = __iter__ = __bool__ = __eq__ = __hash__ = fail
    __float__ = __int__ = __contains__ = __getitem__ = __getattr__ = __format__ = fail
    __class__ = property(fail)  # type: ignore[assignment]


class Endless:
    """Holds itself under every name."""

    def __getattr__(self, name: str) -> Endless:
        return Endless()


class EndlessMapping(Mapping[str, Any]):
    """Is never through, and holds itself under every key."""

    def __getitem__(self, key: str) -> Any:
        return self

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "key"

    def __len__(self) -> int:
        return 1


def doubled() -> list[Any]:
    """Make a list that is 2**60 long when it is written out."""
    value: list[Any] = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {"text": None}
    value["content"] = value["metadata"] = value["self"] = [value, value]
    return value


HOSTILE: list[Callable[[], Any]] = [
    Hostile,
    Endless,
    EndlessMapping,
    doubled,
    cyclic,
    lambda: numpy.zeros((1_000, 1_000)),
    lambda: type("Text", (str,), {"encode": fail, "isascii": fail, "__len__": fail})("text"),
    lambda: b"\xff" * 1_000,
    lambda: SimpleNamespace(text=Hostile(), id=Hostile(), score=Hostile(), metadata=EndlessMapping()),
    lambda: {"text": "T", "id": Hostile(), "score": Hostile(), "metadata": {"a": Hostile(), "b": doubled()}},
    lambda: [{"role": Hostile(), "content": [Hostile(), {"type": "text", "text": Hostile()}]}],
    lambda: range(10**12),
    lambda: dict.fromkeys(range(100_000), 0),
    lambda: 10**5_000,
]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.sampled_from(HOSTILE),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(["id", "text", "content", "score", "metadata", "node"]), inner),
    ),
    max_leaves=8,
)


def made(plan: Any) -> Any:
    """Make the hostile values, which hypothesis must not touch."""
    if callable(plan):
        return plan()
    if isinstance(plan, dict):
        held = {key: made(value) for key, value in plan.items()}
        return held if "node" not in held else SimpleNamespace(**held)
    return type(plan)(made(value) for value in plan) if isinstance(plan, list | tuple) else plan


@pytest.fixture(autouse=True)
def capture_is_on() -> Iterator[None]:
    from opentelemetry.sdk.trace import TracerProvider

    ragtrace.uninstrument()
    assert ragtrace.instrument(tracer_provider=TracerProvider(shutdown_on_exit=False))
    yield
    ragtrace.uninstrument()


@given(plan=JUNK)
@example(plan=Hostile)
@example(plan=[Hostile])
def test_an_application_gets_back_what_it_returns_whatever_that_is(plan: Any) -> None:
    value = made(plan)
    for helper in (ragtrace.rag, ragtrace.retrieval, ragtrace.generation):
        assert helper(lambda question: question)(value) is value
        streamed = helper(lambda question: (piece for piece in [question]))(value)
        assert next(streamed) is value
        assert list(streamed) == []


@given(plan=JUNK)
@example(plan=Hostile)
@example(plan=[Hostile])
def test_whatever_is_told_nothing_raises(plan: Any) -> None:
    value = made(plan)
    told = {"name": value, "session_id": value, "reference": value, "metadata": {"v": value}}
    with ragtrace.rag(question=value, **told) as call:
        call.set_question(value)
        with ragtrace.retrieval(value, data_source=value, top_k=value) as search:
            search.set_query(value)
            search.set_chunks(value)
            search.set_chunks([value, (value, 0.5), {"id": value, "text": value, "metadata": value}])
        with ragtrace.generation(provider=value, messages=value) as chat:
            chat.set_messages([value, {"role": value, "content": value}])
            chat.set_usage(input_tokens=value)
            chat.set_response(id=value, model=value, finish_reasons=value)
            chat.add_answer(value)
        call.add_answer(value)
        call.answer = value
    assert call.trace_id is not None


def test_what_cannot_be_read_is_told_once_without_content_and_counted(
    recorded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    counted = ragtrace.statistics()
    for _ in range(3):
        with ragtrace.retrieval(query="q") as search:
            search.set_chunks([Hostile(), object(), {"body": "secret"}])
    now = ragtrace.statistics()
    assert now.values_unread == counted.values_unread + 6
    assert now.errors_stopped > counted.errors_stopped
    assert len(caplog.messages) == len(set(caplog.messages)) <= 5
    assert "ragtrace: no text of a chunk was found in a value of type object" in caplog.messages
    assert "secret" not in caplog.text


def completion(content: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


class Structured(BaseModel):
    city: str
    days: int


def said(text: str) -> Any:
    thought = SimpleNamespace(type="thinking", thinking="hm", signature="")
    return SimpleNamespace(type="message", content=[thought, SimpleNamespace(type="text", text=text)])


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (completion("Ada"), "Ada"),
        (said("Ada"), "Ada"),
        ({"output": {"message": {"content": [{"text": "Ada"}]}}}, "Ada"),
        (b"Ada", "Ada"),
        (7, "7"),
        (("Ada", ["source"]), "Ada"),
        ({"city": "Ulm", "days": 2}, '{"city":"Ulm","days":2}'),
        (Structured(city="Ulm", days=2), '{"city":"Ulm","days":2}'),
        (["Ulm", 2], '["Ulm",2]'),
        (object(), None),
        (None, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_that_is_no_string_is_read(recorded: Any, given: Any, answer: str | None) -> None:
    with ragtrace.rag(question="Who?") as call:
        call.answer = given
    assert recorded.answer == answer


def chunk(content: str | None) -> Any:
    return SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(content=content))])


@pytest.mark.parametrize(
    "pieces",
    [
        [chunk("A"), chunk("da"), chunk(None)],
        [
            {"type": "response.created", "response": {"output_text": ""}},
            {"type": "response.output_text.delta", "delta": "A"},
            {"type": "response.function_call_arguments.delta", "delta": "{}"},
            {"type": "response.output_text.delta", "delta": "da"},
            {"type": "response.output_text.done", "text": "Ada"},
        ],
        [
            {"type": "message_start", "message": {"content": []}},
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "A"}},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "da"}},
            {"type": "text", "text": "da", "snapshot": "Ada"},
            {"type": "message_stop", "message": {"content": [{"type": "text", "text": "Ada"}]}},
        ],
        [b"A", b"da"],
        ["A", None, "da"],
    ],
    ids=["chat", "responses", "anthropic", "bytes", "none among them"],
)
def test_pieces_of_a_stream_are_read_each_once(recorded: Any, pieces: list[Any]) -> None:
    @ragtrace.rag
    def ask(question: str) -> Iterator[Any]:
        yield from pieces

    assert list(ask("Who?")) == pieces
    assert recorded.answer == "Ada"
