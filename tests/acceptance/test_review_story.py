"""People review on the page and calibrate by it; a bad week is exported, mended, and shown to be better."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from typing import Any

import httpx
import pytest

from tests.acceptance.collector_process import collector_process, settings_of
from tests.backends.process import eventually
from tests.integration.cli.program import json_lines, run, start
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow


CHUNK = "Orders can be returned within 14 days. Refunds take 5 working days. The shop is in Ulm."
FRIENDLY = "The staff are friendly people."
GOOD = f"Orders can be returned within 14 days. Refunds take 5 working days. The shop is in Ulm. {FRIENDLY}"
WRONG = ("The shop is in Bonn.", "Shipping is free on Sundays.")
BAD = " ".join(("Orders can be returned within 14 days.", "Refunds take 5 working days.", *WRONG))
SCRIPT = {"claims": {FRIENDLY: "not_mentioned", **dict.fromkeys(WRONG, "not_mentioned")}}
"""The judge is too strict: people say that the staff's friendliness is supported."""
ANSWERS = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    records = [
        {
            "id": f"row-{number}",
            "question": f"Question {number}?",
            "contexts": [f"{CHUNK} Our staff is friendly. Branch {number}."],
            "answer": GOOD if number % 2 else BAD,
        }
        for number in range(ANSWERS)
    ]
    Path("records.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    Path("script.json").write_text(json.dumps(SCRIPT))
    return tmp_path


@contextmanager
def running_page(*args: str) -> Iterator[httpx.Client]:
    """Run `ragtrace ui`, and open it like a browser."""
    process = start("ui", *args, "--listen", "127.0.0.1:0", "--no-open")
    assert process.stderr
    try:
        lines = iter(process.stderr.readline, b"")
        url = next(found[1] for line in lines if (found := re.search(rb"The page is at (\S+)", line)))
        next(line for line in lines if b"Searched: " in line)
        with httpx.Client(base_url=url.decode(), follow_redirects=True, timeout=PATIENCE_S) as browser:
            yield browser
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)


def form_of(page: httpx.Response) -> tuple[str, dict[str, str]]:
    """Return where the form goes, with a person's label of each claim."""
    found = re.search(r'<form class="left" method="post" action="([^"]+)">(.*?)</form>', page.text, re.DOTALL)
    assert found
    fields = dict(re.findall(r'type="hidden" name="([a-z]+)" value="([^"]*)"', found[2]))
    for claim in found[2].split("<fieldset")[1:]:
        number = re.search(r'data-review="(\d+)"', claim)
        assert number
        is_wrong = any(text in claim for text in WRONG)
        fields[f"label-{number[1]}"] = "unsupported" if is_wrong else "supported"
    return found[1].replace("&amp;", "&"), fields


def labels_in(report: str) -> dict[str, str]:
    """Return pass or fail by record."""
    rows = json_lines(Path(report).read_text("utf-8"))
    return {row["record_id"]: row["label"] for row in rows}


def test_people_review_and_the_judge_is_calibrated_by_their_labels(folder: Path) -> None:
    judge = f"scripted:{folder / 'script.json'}"
    first = run("evaluate", "records.jsonl", "--judge", judge, "--out", "report.jsonl")
    assert first.exit_code == 0, first.stderr
    assert {*labels_in("report.jsonl").values()} == {"fail"}

    with running_page("--from", "report.jsonl", "--set", "ui.reviews=reviews.db") as browser:
        page = browser.get("/review/next?queue=random")
        for _ in range(ANSWERS):
            action, fields = form_of(page)
            page = browser.post(action, data=fields)
        assert "This queue is empty" in page.text
        of_page = browser.get("/review/labels.jsonl").text

    exported = run("export-records", "--random", "--reviews", "reviews.db", "--out", "labels.jsonl")
    assert exported.exit_code == 0, exported.stderr
    assert exported.stderr == (
        "12 answers with 48 labeled claims; people and judge agree on 42 of 48 claims\n"
    )
    assert Path("labels.jsonl").read_text("utf-8") == of_page
    assert Path("labels.jsonl").stat().st_mode & 0o077 == 0

    calibrated = run("calibrate", "labels.jsonl", "--judge", judge, "--save", "judge.json")
    assert calibrated.exit_code == 0, calibrated.stderr
    assert 0.5 < json.loads(Path("judge.json").read_text())["answer_threshold"] <= 0.75

    again = run(
        *("evaluate", "records.jsonl", "--judge", judge),
        *("--calibration", "judge.json", "--out", "after.jsonl"),
    )
    assert again.exit_code == 0, again.stderr
    assert labels_in("after.jsonl") == {
        f"row-{number}": "pass" if number % 2 else "fail" for number in range(ANSWERS)
    }


def test_an_export_without_reviews_says_where_they_come_from(folder: Path) -> None:
    result = run("export-records", "--reviews", "nothing.db")
    assert result.exit_code == 2
    assert "there is no file of reviews 'nothing.db': review answers on the page" in result.stderr
    assert not Path("nothing.db").exists()


ANSWERS_IN_WEEK, WRONG_IN_WEEK = 60, 40


def asked(number: int) -> Mapping[str, Any]:
    """Two of three answers say another number of days than the chunk."""
    right = f"Branch {number} takes parcels back within 14 days."
    answer = right.replace("14", "30") if number % 3 else right
    return {"question": f"How long does branch {number} take?", "chunks": (right,), "answer": answer}


def test_a_bad_week_becomes_a_test_set_and_the_gate_says_when_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = settings_of(tmp_path, judge={"use": "scripted"}, ui={"listen": "127.0.0.1:0"})
    with collector_process(tmp_path, config) as collector:
        for number in range(ANSWERS_IN_WEEK):
            spans = rag_trace(number, start_ns=time_ns(), **asked(number))
            assert collector.send(*spans).status_code == 200
        store = f"store:{tmp_path / 'store.db'}"
        judged = f"{ANSWERS_IN_WEEK}  100.0%  judged"
        eventually(lambda: judged in run("ledger", "--from", store).stdout, what="every verdict")
        page = f"http://127.0.0.1:{collector.ui_port}"
        failed = httpx.get(f"{page}/answers?label=fail").text
        (link,) = re.findall(r'href="(/answers.records[^"]*)"', failed)
        Path("week.jsonl").write_text(httpx.get(f"{page}{link}".replace("&amp;", "&")).text, "utf-8")
        assert collector.stop() == 0

    rows = json_lines(Path("week.jsonl").read_text("utf-8"))
    assert len(rows) == WRONG_IN_WEEK
    mended = [{**row, "answer": row["answer"].replace("30", "14")} for row in rows]
    Path("mended.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in mended), "utf-8")
    for name in ("week", "mended"):
        done = run("evaluate", f"{name}.jsonl", "--judge", "scripted", "--out", f"{name}.report.jsonl")
        assert done.exit_code == 0, done.stderr

    gate = ("--fail-if", "possibly worse by more than 0.02")
    better = run("compare", "week.report.jsonl", "mended.report.jsonl", *gate)
    assert better.exit_code == 0, better.output
    assert "40 pairs (40 by record id)" in better.stdout
    assert "40 to pass, 0 to fail" in better.stdout
    worse = run("compare", "mended.report.jsonl", "week.report.jsonl", *gate)
    assert worse.exit_code == 1, worse.output
    assert "0 to pass, 40 to fail" in worse.stdout
