"""The content policy holds for spans that other libraries' instrumentors write, in real applications."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragtrace.model import RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Trace
from tests.model_server import model_environment, running_model_server
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
ASKING = Path(__file__).parent / "apps" / "private_question.py"
QUESTION = "How long do I have for a return? I am jane.doe@example.com, +49 30 901820."
APPLICATIONS = [
    *("openai_chat", "openai_responses", "openai_streaming", "anthropic_app", "langchain_app"),
    *("llamaindex_app", "haystack_app", "pydantic_ai_app", "qdrant_app"),
]

Ask = Callable[[str, str], str]


@pytest.fixture(scope="module")
def ask(frameworks: Path) -> Iterator[Ask]:
    """Ask an application in a mode; return its spans as OTLP/JSON."""
    with running_model_server() as url:
        path = os.pathsep.join(map(str, (ROOT, ROOT / "examples" / "frameworks")))
        env = {**os.environ, **model_environment(url), "PYTHONPATH": path}

        def asked(application: str, mode: str) -> str:
            command = [str(frameworks), str(ASKING), application, mode, QUESTION]
            run = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            assert run.returncode == 0, run.stderr
            return run.stdout.splitlines()[-1]

        yield asked


def records(printed: str) -> list[RagRecord]:
    traces = defaultdict(list)
    for span in decode_json(printed):
        traces[span.trace_id].append(span)
    return [
        record
        for trace_id, spans in traces.items()
        for record in extract_records(Trace(trace_id=trace_id, spans=tuple(spans))).records
    ]


@pytest.mark.parametrize("application", APPLICATIONS)
def test_redacted_no_span_holds_a_value_and_the_record_is_whole(ask: Ask, application: str) -> None:
    printed = ask(application, "redacted")
    assert "jane.doe" not in printed
    assert "901820" not in printed
    (record,) = records(printed)
    assert record.question == "How long do I have for a return? I am <EMAIL_1>, <PHONE_1>."
    assert (record.answer or "").startswith("Unused lamps can be returned within 30 days")
    assert len(record.chunks) == 3
    assert record.gaps == ()


@pytest.mark.parametrize(
    ("application", "mode"),
    [("openai_chat", "hashed"), ("langchain_app", "hashed"), ("pydantic_ai_app", "off")],
)
def test_hashed_and_off_no_span_holds_a_text(ask: Ask, application: str, mode: str) -> None:
    printed = ask(application, mode)
    for text in ("jane.doe", "901820", "How long do I have", "within 30 days", "Unused lamps"):
        assert text not in printed
