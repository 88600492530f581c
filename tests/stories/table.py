"""Every story: what its reader uses, installs and runs, and what is seen in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.stories.environments import ENVIRONMENTS, Environment

__all__ = ["JUDGED", "TOLD", "Judged", "Start", "Told", "Verdict"]

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"
EXAMPLES = ROOT / "examples" / "frameworks"

WARRANTY = "How long does the warranty last?"
REFUNDS = "How long do refunds take?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program, the environment it runs in, and what it is asked."""

    name: str
    program: Path
    environment: Environment
    question: str = WARRANTY
    with_agent: bool = False
    """Whether ``opentelemetry-instrument`` starts it."""
    route: str | None = None
    """Where a server is asked; any other program is asked by its argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What stands on the trace in the end."""

    span: str = "evaluation fail"
    claims: tuple[str, ...] = ("contradicted",)
    chunks: int
    from_prompt: bool = False
    """The chunks were parted in the prompt: no span held them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A story that ends in a verdict."""

    uses: str
    start: Start
    also: tuple[Path, ...] = ()
    """Other files of the program that the reader adds to."""
    streams: bool = False
    sees: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A story in which something is missing, and its reader hears what."""

    situation: str
    start: Start
    listening: bool = True
    says: Sequence[str]
    """Parts of the one line on stderr."""


def _examples() -> Iterator[Judged]:
    by_hand = (EXAMPLES / "handbook.py",)
    for uses, application, environment, also, streams in (
        ("OpenAI, chat completions", "openai_chat", "openai", by_hand, False),
        ("OpenAI, Responses", "openai_responses", "openai", by_hand, False),
        ("OpenAI, asynchronous client", "openai_async", "openai", (), False),
        ("OpenAI, chat completions", "openai_streaming", "openai", by_hand, True),
        ("LangChain", "langchain_app", "langchain", (), False),
        ("LlamaIndex", "llamaindex_app", "llama-index", (), False),
        ("Haystack", "haystack_app", "haystack", (), False),
    ):
        yield Judged(
            uses=uses,
            start=Start(
                name=application.replace("_", "-"),
                program=EXAMPLES / f"{application}.py",
                environment=ENVIRONMENTS[environment],
            ),
            also=also,
            streams=streams,
            sees=Verdict(chunks=2 if application == "llamaindex_app" else 3),
        )


def _apps() -> Iterator[Judged]:
    for uses, program, environment, streams, sees in (
        ("OpenAI, asynchronous client", "openai_async_streaming", "openai", True, Verdict(chunks=1)),
        ("LangChain", "langchain_streaming", "langchain", True, Verdict(chunks=3)),
        ("LlamaIndex", "llamaindex_streaming", "llama-index", True, Verdict(chunks=2)),
        (
            "OpenAI alone, passages in the prompt",
            "prompt_only",
            "openai",
            False,
            Verdict(chunks=2, from_prompt=True),
        ),
        (
            "LangChain under OpenInference",
            "openinference_langchain",
            "openinference",
            False,
            Verdict(chunks=2),
        ),
        ("OpenAI under Traceloop's SDK", "openllmetry_workflow", "openllmetry", False, Verdict(chunks=1)),
        (
            "OpenAI alone under OpenLLMetry's instrumentor",
            "openllmetry_instrumentor",
            "openllmetry",
            False,
            Verdict(chunks=1, from_prompt=True),
        ),
    ):
        yield Judged(uses=uses, start=_app(program, environment), streams=streams, sees=sees)
    for uses, program, streams in (
        ("code of your own", "plain_code", False),
        ("code of your own, generators", "plain_generator", True),
        ("code of your own, async generators", "plain_async_generator", True),
        ("code of your own, `add_answer`", "plain_add_answer", True),
    ):
        start = _app(program, "plain", question=REFUNDS)
        yield Judged(uses=uses, start=start, streams=streams, sees=Verdict(chunks=1))


def _app(program: str, environment: str, *, question: str = WARRANTY) -> Start:
    return Start(
        name=program.replace("_", "-"),
        program=APPS / f"{program}.py",
        environment=ENVIRONMENTS[environment],
        question=question,
    )


def _servers() -> Iterator[Judged]:
    example = ROOT / "examples" / "fastapi_rag" / "app.py"
    right = Verdict(span="evaluation pass", claims=("supported",), chunks=3)
    for uses, program, route, question, streams, sees in (
        ("FastAPI, the example", example, "/ask", "How long is the warranty?", False, right),
        ("FastAPI, the example", example, "/stream", "How long is the warranty?", True, right),
        ("FastAPI, `StreamingResponse`", APPS / "fastapi_route.py", "/ask", REFUNDS, True, Verdict(chunks=1)),
    ):
        yield Judged(
            uses=uses,
            start=Start(
                name=f"{program.parent.name if program is example else program.stem}{route}".replace(
                    "_", "-"
                ),
                program=program,
                environment=ENVIRONMENTS["fastapi"],
                question=question,
                route=route,
            ),
            streams=streams,
            sees=sees,
        )


def _without_a_line() -> Iterator[Judged]:
    yield Judged(
        uses="OpenAI alone under `opentelemetry-instrument`",
        start=Start(
            name="zero-code",
            program=APPS / "untraced_prompt.py",
            environment=ENVIRONMENTS["zero-code"],
            with_agent=True,
        ),
        sees=Verdict(chunks=2, from_prompt=True),
    )


JUDGED: Sequence[Judged] = (*_examples(), *_apps(), *_servers(), *_without_a_line())

TOLD: Sequence[Told] = (
    Told(
        situation="the library's instrumentor is not installed",
        start=Start(
            name="no-instrumentor",
            program=APPS / "prompt_only.py",
            environment=ENVIRONMENTS["no-instrumentor"],
        ),
        says=("openai is imported, but its calls are not traced", "pip install"),
    ),
    Told(
        situation="no collector listens",
        start=Start(
            name="no-collector",
            program=APPS / "plain_code.py",
            environment=ENVIRONMENTS["plain"],
            question=REFUNDS,
        ),
        listening=False,
        says=("no span could be sent to http://127.0.0.1:", "is a collector running there"),
    ),
    Told(
        situation="no function is marked, and no library is used that is known",
        start=Start(
            name="no-rag-call",
            program=APPS / "no_rag_call.py",
            environment=ENVIRONMENTS["plain"],
            question=REFUNDS,
        ),
        says=("none is part of a RAG call", "@ragtrace.rag", "@ragtrace.retrieval"),
    ),
)
