"""The same traces at the doors that judge: a running collector and `backfill`, beside `evaluate`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from ragtrace.traces.otlp import encode, encode_json
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.running import carriers_in, config_of, post, running_collector, until
from tests.reading.cases import reported

pytestmark = pytest.mark.slow
CASES = reported()  # how the others are read, `explain` shows


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Counter[tuple[str, str]]:
    """Evaluate what a person reads: how often each trace has which verdict."""
    folder = tmp_path_factory.mktemp("evaluated")
    whole = [(case, each) for case in CASES for each in case.expected if not each.incomplete]
    records = folder / "records.jsonl"
    with records.open("w", encoding="utf-8") as file:
        for place, (_, each) in enumerate(whole):
            texts = {"question": each.question, "answer": each.answer, "contexts": each.chunks}
            file.write(f"{json.dumps({'id': str(place), **texts})}\n")
    (folder / "script.json").write_text("{}")
    out = run("evaluate", str(records), "--judge", f"scripted:{folder / 'script.json'}", "--json").stdout
    labels = {row["id"]: row["label"] for row in json_lines(out)}
    return _judged((case.spans[0].trace_id, labels[str(place)]) for place, (case, _) in enumerate(whole))


def _judged(verdicts: Iterable[tuple[str, str]]) -> Counter[tuple[str, str]]:
    return Counter(each for each in verdicts if each[1] != "skipped")


def test_collector_judges_what_a_person_reads(verdicts: Counter[tuple[str, str]], tmp_path: Path) -> None:
    sent = tmp_path / "out.jsonl"

    async def judged() -> None:
        async with running_collector(config_of(tmp_path)) as collector:
            for case in CASES:
                assert (await post(collector, encode(case.spans))).status_code == 200
            await until(lambda: _verdicts_in(sent).total() >= verdicts.total())

    asyncio.run(judged())
    assert _verdicts_in(sent) == verdicts


def test_backfill_judges_what_a_person_reads(verdicts: Counter[tuple[str, str]], tmp_path: Path) -> None:
    traces, sent = tmp_path / "traces.jsonl", tmp_path / "sent.jsonl"
    traces.write_text("".join(f"{encode_json(case.spans)}\n" for case in CASES), encoding="utf-8")
    (tmp_path / "script.json").write_text("{}")
    source = ("--from", f"otlp-file:{traces}", "--to", f"otlp-file:{sent}", "--since", "2000-01-01")
    run("backfill", *source, "--judge", f"scripted:{tmp_path / 'script.json'}")
    assert _verdicts_in(sent) == verdicts


def _verdicts_in(file: Path) -> Counter[tuple[str, str]]:
    return _judged((span.trace_id, span.name.removeprefix("evaluation ")) for span in carriers_in(file))
