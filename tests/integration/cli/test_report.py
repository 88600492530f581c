"""``ragtrace report``: over a collector's store, a file of OTLP and a report, in 80 columns and as JSON."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ragtrace.answers.carrier import summary_of
from ragtrace.model import Sample, VerdictLabel
from ragtrace.reviews import ReviewFile, ReviewPick
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Span, Trace
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.rag_spans import START_NS, rag_trace
from tests.unit.reviews.test_review_file import RECORD, REVIEW
from tests.unit.traces.builders import a_claim, a_result, an_evaluation

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "report.schema.json").read_text("utf-8"))
HOUR_NS = 3_600 * 10**9


def judged_trace(number: int, score: float, *, source: str = "", start_ns: int | None = None) -> list[Span]:
    """Return the spans of an answer with its carrier; ``source`` is in the metadata of its chunk."""
    began_ns = START_NS + number * HOUR_NS if start_ns is None else start_ns
    service = "shop" if number % 2 else "help"
    spans = [_from_source(span, source) for span in rag_trace(number, service=service, start_ns=began_ns)]
    (record,) = extract_records(Trace.of(spans[0].trace_id, tuple(spans))).records
    made = carrier(
        replace(
            an_evaluation(a_result(a_claim(0, VerdictLabel.SUPPORTED), score=score)),
            started_at_ns=began_ns + 10**9,
        ),
        record,
        sample=Sample(rule="ratio", rate=0.5, probability=0.5),
        options=AttachOptions(),
        now_ns=began_ns + 2 * 10**9,
    )
    return [*spans, made]


def _from_source(span: Span, source: str) -> Span:
    def with_source(value: Any) -> Any:
        if not (source and isinstance(value, tuple) and value and '"id": "chunk-' in str(value[0])):
            return value
        return tuple(json.dumps({**json.loads(one), "metadata": {"source": source}}) for one in value)

    return replace(span, attributes={key: with_source(value) for key, value in span.attributes.items()})


def file_of(path: Path, *traces: list[Span]) -> str:
    path.write_text("".join(f"{encode_json(spans)}\n" for spans in traces))
    return str(path)


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """Return a file of OTLP with forty judged answers, thirty of which pass, from two documents."""
    return file_of(
        tmp_path / "traces.jsonl",
        *(
            judged_trace(number, 0.3 if number % 4 == 0 else 0.9, source=f"{number % 2}.pdf")
            for number in range(40)
        ),
    )


def as_json(*args: str) -> dict[str, Any]:
    told = run("report", *args, "--json")
    assert told.exit_code == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def test_people_see_estimates_with_what_stands_beside_them_in_80_columns(stored: str) -> None:
    told = run("report", "--from", stored, "--by", "service")
    assert told.exit_code == 0, told.stderr
    lines = told.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for said in (
        "all: 40 answers",
        "service help: 20 answers",
        "failed 0 of 40 (0 %), skipped 0 of 40 (0 %), judged 40 of about 80 answers",
        "75 % [60, 86]",
        "To detect a drop of 5 points",
    ):
        assert said in told.stdout


def test_machines_get_the_same_in_the_documented_form(stored: str) -> None:
    found = as_json("--from", stored, "--by", "service")
    (metric,) = found["all"]["metrics"]
    assert (metric["results"], metric["judged"], metric["coverage"]) == (40, 40, 0.5)
    assert metric["pass_rate"]["value"] == pytest.approx(0.75)


def test_sources_are_those_of_answers_that_were_opened_and_it_says_how_many(stored: str) -> None:
    found = as_json("--from", stored, "--by", "source")
    assert {group["name"]: group["answers"] for group in found["groups"]} == {"0.pdf": 20, "1.pdf": 20}
    assert "sources are those of 40 opened answers, of 40 drawn at random" in found["notices"]


@pytest.mark.slow
def test_it_writes_a_page_and_a_file_of_json_without_the_texts(stored: str, tmp_path: Path) -> None:
    for name in ("report.html", "report.json"):
        told = run("report", "--from", stored, "--by", "day", "--out", str(tmp_path / name))
        assert told.exit_code == 0, told.stderr
        text = (tmp_path / name).read_text()
        assert "faithfulness" in text
        assert "Refunds" not in text
        assert "How long" not in text
    jsonschema.validate(json.loads((tmp_path / "report.json").read_text()), SCHEMA)


@pytest.mark.slow
def test_reviews_in_random_order_correct_faithfulness(tmp_path: Path) -> None:
    people = 40
    traces = [judged_trace(number, 0.9) for number in range(people)]

    async def review() -> None:
        file = ReviewFile(tmp_path / "reviews.db")
        for number, spans in enumerate(traces):
            answer = summary_of(spans[-1])
            assert answer is not None
            said = VerdictLabel.SUPPORTED if number % 4 else VerdictLabel.CONTRADICTED
            await file.add(
                [replace(REVIEW, key=answer.key, label=said, picked=ReviewPick.RANDOM)], record=RECORD
            )
        await file.aclose()

    asyncio.run(review())
    place = file_of(tmp_path / "traces.jsonl", *traces)
    reviewed = as_json("--from", place, "--reviews", str(tmp_path / "reviews.db"))["reviewed"]
    assert reviewed["answers"] == people
    assert reviewed["pass_rate"]["value"] == pytest.approx(0.75)  # the judge passes all of them
    told = run("report", "--from", place, "--reviews", str(tmp_path / "reviews.db"))
    assert f"{people} answers reviewed in random order" in " ".join(told.stdout.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--from", "nope:x"], "is not an address"),
        (["--from", "text.txt", "--since", "1d", "--until", "2d"], "is not before"),
    ],
    ids=" ".join,
)
def test_what_makes_no_report_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("no database, and no spans\n" * 100)
    told = run("report", *args)
    assert told.exit_code in (1, 2)
    assert said in " ".join(told.stderr.split())


@pytest.mark.slow
async def test_the_store_of_a_running_collector_is_read(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    config = config_of(tmp_path, export=[{"endpoint": f"otlp-file:{out}"}])
    async with running_collector(config) as collector:
        for number in range(3):
            spans = rag_trace(number, start_ns=time.time_ns() - HOUR_NS)
            await post(collector, request_of(*spans))
        await until(lambda: out.exists() and out.read_bytes().count(b"ragtrace.schema") >= 3)
        store = f"store:{tmp_path / 'store.db'}"
        found = await asyncio.to_thread(as_json, "--from", store, "--by", "tenant")
    assert found["all"]["answers"] == 3
    assert found["place"] == store
    assert found["ledger"] == {"judged": 3, "eligible": 3, "seen": 3}
    assert found["groups"][0]["name"] == "(none)"
