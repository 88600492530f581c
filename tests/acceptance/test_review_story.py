"""People review on the page, and the judge is calibrated by their labels."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.cli.program import json_lines, run, start
from tests.patience import PATIENCE_S

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
