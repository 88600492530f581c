"""docs/reading.md is made from the recordings; the example of docs/conventions.md works.

``REGENERATE_GOLDEN=1 make test ARGS=tests/docs`` writes both again.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ragtrace.traces.extract import extract_records
from ragtrace_collector.config import load_config
from tests.docs.prompt_shapes import QUESTION, RETURNS, SHAPES, WARRANTY, Shape
from tests.integration.cli.program import run
from tests.reading.cases import grade, read, reported
from tests.reading.kinds import held
from tests.unit.traces.builders import a_span, a_trace
from tests.unit.traces.recordings import (
    PARTS,
    Agreement,
    Recording,
    agreement,
    all_recordings,
    records_of,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reading.md"
CONVENTIONS = ROOT / "docs" / "conventions.md"
RECORDINGS = ROOT / "tests" / "data" / "recordings"
REGENERATE = "REGENERATE_GOLDEN"
TABLE = re.compile(r"(?<=<!-- measured: begin -->\n).*(?=<!-- measured: end -->)", re.DOTALL)
EXPLAINED = re.compile(r"(?<=<!-- explained: begin -->\n).*(?=<!-- explained: end -->)", re.DOTALL)
SHAPES_TABLE = re.compile(r"(?<=<!-- shapes: begin -->\n).*?(?=<!-- shapes: end -->)", re.DOTALL)
GRADED = re.compile(r"(?<=<!-- graded: begin -->\n).*?(?=<!-- graded: end -->)", re.DOTALL)
SHOWN = "langfuse.langfuse-langchain"
EXAMPLE = re.compile(r"```yaml\n(extract:\n.*?)```", re.DOTALL)

WORDS = {
    Agreement.SAME: "yes",
    Agreement.PARTIAL: "some",
    Agreement.MISSING: "no",
    Agreement.DIFFERENT: "**wrong**",
}
WRITERS = {
    "haystack": ("Haystack", "haystack-ai"),
    "langfuse": ("Langfuse", "langfuse"),
    "langsmith": ("LangSmith", "langsmith"),
    "llamaindex": ("LlamaIndex", "llama-index-observability-otel"),
    "logfire": ("Logfire", "logfire"),
    "mlflow": ("MLflow", "mlflow-tracing"),
    "openai-v2": ("OpenTelemetry openai-v2", "opentelemetry-instrumentation-openai-v2"),
    "openinference": ("OpenInference", "openinference-instrumentation"),
    "openllmetry": ("OpenLLMetry", "opentelemetry-instrumentation-openai"),
    "otel-genai": ("OpenTelemetry GenAI", "opentelemetry-util-genai"),
    "pydantic-ai": ("pydantic-ai", "pydantic-ai-slim"),
    "ragtrace": ("ragtrace", ""),
    "traceloop": ("Traceloop", "traceloop-sdk"),
    "vercel": ("AI SDK", "ai"),
    "vercel-legacy": ("AI SDK", "ai"),
}
"""By the name in a recording: what people call it, and the package whose version says which it is."""


def measured() -> str:
    """A sentence, and the table: a line a recording."""
    compared = [(recording, agreement(recording)) for recording in all_recordings()]
    rows = [line(recording, found) for recording, found in compared]
    head = ("written by", "application", *PARTS, "what is special")
    sums = Counter(how for _, found in compared for how in found.values())
    counts = ", ".join(f"{sums[how]} {grade}" for grade, how in zip(GRADES, BY_GRADE, strict=True))
    title = f"{len(compared)} traces, {sums.total()} parts: {counts}."
    return "\n".join((title, "", row(head), row(["---"] * len(head)), *rows, ""))


def line(recording: Recording, found: Mapping[str, Agreement]) -> str:
    cells = [WORDS[found[part]] if part in found else "" for part in PARTS]
    return row(
        [written_by(recording), str(recording.about["application"]), *cells, str(recording.about["shows"])]
    )


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def written_by(recording: Recording) -> str:
    instrumentation, versions = str(recording.about["instrumentation"]), recording.about["versions"]
    name, package = WRITERS.get(instrumentation, (instrumentation, ""))
    version = versions.get(package) if isinstance(versions, Mapping) else None
    through = f", through {recording.about['through']}" if "through" in recording.about else ""
    return (f"{name} {version}" if version else name) + through


def explained(folder: Path) -> str:
    """What `ragtrace explain` says about a recording."""
    trace = json.loads((RECORDINGS / f"{SHOWN}.json").read_text("utf-8"))["trace"]
    (folder / "traces.jsonl").write_text(json.dumps(trace))
    return f"```text\n{run('explain', str(folder / 'traces.jsonl')).stdout.rstrip()}\n```\n"


def assert_written(part: re.Pattern[str], text: str) -> None:
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        PAGE.write_text(part.sub(lambda _: text, PAGE.read_text("utf-8")), "utf-8")
    assert part.findall(PAGE.read_text("utf-8")) == [text], f"run once with {REGENERATE}=1 if this is meant"


@pytest.mark.slow
def test_the_table_says_what_is_measured() -> None:
    assert_written(TABLE, measured())


def graded() -> str:
    """A row for each kind of case: how many are read rightly, in part, wrongly, not at all."""
    counts: dict[str, Counter[str]] = {}
    for case in (*reported(), *held()):
        counts.setdefault(case.kind, Counter())[grade(case, read(case))] += 1
    head = ("kind", *GRADES)
    rows = [row([KINDS[kind], *(str(found[each]) for each in GRADES)]) for kind, found in counts.items()]
    return "\n".join((row(head), row(["---"] * len(head)), *rows, ""))


GRADES = ("right", "partly", "wrong", "silent")
BY_GRADE = (Agreement.SAME, Agreement.PARTIAL, Agreement.DIFFERENT, Agreement.MISSING)
KINDS = {
    "reported": "reported by users",
    "answer": "which answer left the application",
    "many": "many calls below one root, and one call of many retrievals",
    "prompt": "passages in prompts, in eight languages",
    "hosted": "search inside the model's call",
    "clock": "clocks that differ",
    "wrapped": "answers in JSON, fields and thoughts",
    "stream": "broken and whole streams",
    "producer": "producers",
    "negative": "no RAG call: none is judged",
}


@pytest.mark.slow
def test_the_page_counts_how_cases_are_read() -> None:
    assert_written(GRADED, graded())


def shapes() -> str:
    """A row a shape: what it is called, and a prompt that has it."""
    rows = [row([shape.name, f"`{_prompt(shape)}`"]) for shape in SHAPES]
    return "\n".join((row(("shape", "prompt")), row(("---", "---")), *rows, ""))


def _prompt(shape: Shape) -> str:
    text = " user: ".join(each["content"] for each in shape.messages)
    for written, shown in ((WARRANTY, "A"), (RETURNS, "B"), (QUESTION, "Q"), ("`", "'"), ("\n", "⏎")):
        text = text.replace(written, shown)
    return text.strip()


def test_the_page_shows_every_shape_of_a_prompt() -> None:
    assert_written(SHAPES_TABLE, shapes())


@pytest.mark.slow
def test_the_page_counts_the_answers_that_are_judged_by_their_prompts() -> None:
    records = [record for recording in all_recordings() for record in records_of(recording)]
    judged = sum(record.context_from_prompt and not record.gaps for record in records)
    assert f"all {judged} complete\nanswers over passages in the prompt are" in CONVENTIONS.read_text("utf-8")


def test_the_page_shows_what_explain_says(tmp_path: Path) -> None:
    assert_written(EXPLAINED, explained(tmp_path))


def test_the_mapping_on_the_page_reads_a_span(tmp_path: Path) -> None:
    (example,) = EXAMPLE.findall(CONVENTIONS.read_text("utf-8"))
    (tmp_path / "collector.yaml").write_text(example)
    span = a_span(
        1,
        attributes={
            "app.question": "How long?",
            "app.result": '{"hits": [{"id": "faq-12", "text": "14 days."}], "answers": ["Two weeks."]}',
            "app.chat.id": "c-1",
        },
    )
    (record,) = extract_records(
        a_trace(span), load_config(tmp_path / "collector.yaml").extract.opened()
    ).records
    assert (record.question, record.answer, record.session_id) == ("How long?", "Two weeks.", "c-1")
    assert [(chunk.id, chunk.text) for chunk in record.chunks] == [("faq-12", "14 days.")]
