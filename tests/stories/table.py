"""Every story: what its reader uses, installs and runs, and what is seen in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.stories.environments import ENVIRONMENTS, ROOT, Environment

__all__ = ["APPS", "EXAMPLES", "JUDGED", "TOLD", "Judged", "Start", "Told"]

APPS = Path(__file__).parent / "apps"
EXAMPLES = ROOT / "examples" / "frameworks"
FASTAPI_EXAMPLE = ROOT / "examples" / "fastapi_rag" / "app.py"

WARRANTY = "How long does the warranty last?"
REFUNDS = "How long do refunds take?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program, the environment it runs in, and what it is asked."""

    name: str
    program: Path
    environment: Environment
    question: str
    with_agent: bool
    """Whether ``opentelemetry-instrument`` starts it."""
    route: str | None
    """Where a server is asked; any other program is asked by its argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A story that ends in a verdict."""

    uses: str
    start: Start
    chunks: int
    from_prompt: bool = False
    """The chunks were parted in the prompt: no span held them."""
    streams: bool = False
    beside: tuple[Path, ...] = ()
    """Other files of the program that its reader adds to."""
    span: str = "evaluation fail"
    claim: str = "contradicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A story in which something is missing, and its reader hears what."""

    situation: str
    start: Start
    listening: bool = True
    on_stderr: bool = True
    """Else ``ragtrace why`` says it."""
    says: Sequence[str]
    """What is said, in parts."""


def started(
    program: Path | str,
    environment: str,
    *,
    name: str = "",
    question: str = WARRANTY,
    with_agent: bool = False,
    route: str | None = None,
) -> Start:
    file = APPS / f"{program}.py" if isinstance(program, str) else program
    return Start(
        name=name or file.stem.replace("_", "-"),
        program=file,
        environment=ENVIRONMENTS[environment],
        question=question,
        with_agent=with_agent,
        route=route,
    )


def example(name: str, environment: str) -> Start:
    return started(EXAMPLES / f"{name}.py", environment)


def served(program: Path | str, route: str, name: str, question: str) -> Start:
    return started(program, "fastapi", route=route, name=name, question=question)


RETRIEVER = (EXAMPLES / "handbook.py",)
LOOM = "How long is the warranty?"

JUDGED: Sequence[Judged] = (
    Judged(
        uses="OpenAI, chat completions", start=example("openai_chat", "openai"), chunks=3, beside=RETRIEVER
    ),
    Judged(
        uses="OpenAI, chat completions",
        start=example("openai_streaming", "openai"),
        chunks=3,
        streams=True,
        beside=RETRIEVER,
    ),
    Judged(uses="OpenAI, Responses", start=example("openai_responses", "openai"), chunks=3, beside=RETRIEVER),
    Judged(uses="OpenAI, asynchronous client", start=example("openai_async", "openai"), chunks=3),
    Judged(
        uses="OpenAI, asynchronous client",
        start=started("openai_async_streaming", "openai"),
        chunks=1,
        streams=True,
    ),
    Judged(
        uses="OpenAI alone, passages in the prompt",
        start=started("prompt_only", "openai"),
        chunks=2,
        from_prompt=True,
    ),
    Judged(uses="LangChain", start=example("langchain_app", "langchain"), chunks=3),
    Judged(uses="LangChain", start=started("langchain_streaming", "langchain"), chunks=3, streams=True),
    Judged(uses="LlamaIndex", start=example("llamaindex_app", "llama-index"), chunks=3),
    Judged(uses="LlamaIndex", start=started("llamaindex_streaming", "llama-index"), chunks=2, streams=True),
    Judged(uses="Haystack", start=example("haystack_app", "haystack"), chunks=3),
    Judged(uses="code of your own", start=started("plain_code", "plain", question=REFUNDS), chunks=1),
    Judged(
        uses="code of your own, generators",
        start=started("plain_generator", "plain", question=REFUNDS),
        chunks=1,
        streams=True,
    ),
    Judged(
        uses="code of your own, async generators",
        start=started("plain_async_generator", "plain", question=REFUNDS),
        chunks=1,
        streams=True,
    ),
    Judged(
        uses="code of your own, `add_answer`",
        start=started("plain_add_answer", "plain", question=REFUNDS),
        chunks=1,
        streams=True,
    ),
    Judged(
        uses="FastAPI, the example's `/ask`",
        start=served(FASTAPI_EXAMPLE, "/ask", "fastapi-ask", LOOM),
        chunks=1,
        span="evaluation pass",
        claim="supported",
    ),
    Judged(
        uses="FastAPI, the example's `/stream`",
        start=served(FASTAPI_EXAMPLE, "/stream", "fastapi-stream", LOOM),
        chunks=1,
        streams=True,
        span="evaluation pass",
        claim="supported",
    ),
    Judged(
        uses="FastAPI, `StreamingResponse`",
        start=served("fastapi_route", "/ask", "fastapi-route", REFUNDS),
        chunks=1,
        streams=True,
    ),
    Judged(
        uses="OpenAI alone, under `opentelemetry-instrument`",
        start=started("untraced_prompt", "zero-code", with_agent=True),
        chunks=2,
        from_prompt=True,
    ),
    Judged(
        uses="LangChain, under OpenInference",
        start=started("openinference_langchain", "openinference"),
        chunks=2,
    ),
    Judged(
        uses="OpenAI, under Traceloop's SDK", start=started("openllmetry_workflow", "openllmetry"), chunks=1
    ),
    Judged(
        uses="OpenAI alone, under OpenLLMetry's instrumentor",
        start=started("openllmetry_instrumentor", "openllmetry"),
        chunks=1,
        from_prompt=True,
    ),
)

TOLD: Sequence[Told] = (
    Told(
        situation="the library's instrumentor is not installed",
        start=started("prompt_only", "no-instrumentor", name="no-instrumentor"),
        says=(
            "openai is imported, but its calls are not traced",
            "pip install openinference-instrumentation-openai",
        ),
    ),
    Told(
        situation="no collector listens",
        start=started("plain_code", "plain", name="no-collector", question=REFUNDS),
        listening=False,
        says=("no span could be sent to http://127.0.0.1:", "is a collector there"),
    ),
    Told(
        situation="no function is marked, and no library is used that is known",
        start=started("no_rag_call", "plain", question=REFUNDS),
        says=("none is part of a RAG call", "@ragtrace.rag", "@ragtrace.retrieval"),
    ),
    Told(
        situation="a model is asked without a passage",
        start=started("plain_chat", "openai"),
        on_stderr=False,
        says=("no_retrieval", "extract.context"),
    ),
)
