"""``ragtrace calibrate``."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ragtrace.metrics.judge_card import read_calibration
from tests.conformance.peer_endpoint import PeerEndpoint, serving
from tests.integration.cli.program import json_lines, run, start
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CHUNK = "Orders can be returned within 14 days. Refunds take 5 working days. The shop is in Ulm."
SAID = {
    "Orders can be returned within 14 days.": "supported",
    "Refunds take 5 working days.": "supported",
    "The shop is in Bonn.": "contradicted",
    "Staff are <b>friendly</b>.": "neutral",
}
"""Claims, and what people say of them."""
SCRIPT = {
    "claims": {
        "Refunds take 5 working days.": "not_mentioned",
        "The shop is in Bonn.": "contradicted",
        "Staff are <b>friendly</b>.": {"label": "supported", "chunks": [1], "quote": "Orders"},
    },
    "answers": {"please break": {"error": "judge_timeout"}},
}


def rows(number: int) -> list[dict[str, Any]]:
    """Return answers of two claims each: a third of the answers hold no flaw."""
    texts = list(SAID)
    pairs = [(texts[0], texts[1]), (texts[0], texts[2]), (texts[1], texts[3])]
    return [
        {
            "id": f"row-{at}",
            "question": "How long?",
            "contexts": [f"{CHUNK} Row {at}."],
            "answer": " ".join(pairs[at % 3]),
            "claims": [{"text": text, "label": SAID[text]} for text in pairs[at % 3]],
        }
        for at in range(number)
    ]


def write(path: Path, given: list[dict[str, Any]]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in given), "utf-8")
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write(tmp_path / "labeled.jsonl", rows(12))


@pytest.fixture
def scripted(tmp_path: Path) -> str:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    return f"scripted:{tmp_path / 'script.json'}"


def calibrate(*args: str) -> Result:
    return run("calibrate", *args)


def as_json(*args: str, exit_code: int = 0) -> dict[str, Any]:
    result = calibrate(*args, "--json")
    assert result.exit_code == exit_code, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_people_see_figures_with_intervals_and_what_follows_in_80_columns(data: str, scripted: str) -> None:
    result = calibrate(data, "--judge", scripted)
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "labeled.jsonl: 12 of 12 answers"
    assert re.search(r"24 claims +100 % +0\.50 \[0\.\d\d, 0\.\d\d\]", result.stdout)
    assert "lexical:lexical-v4 (the judge without a key)" in result.stdout
    assert "floor:word-share (the floor)" in result.stdout
    assert "What follows" in lines
    assert "Against lexical:lexical-v4" in result.stdout
    assert max(map(len, lines)) <= 80
    assert "12 of 12 answers" in result.stderr


def test_machines_get_one_object_with_counts_that_add_up(data: str, scripted: str) -> None:
    [group] = as_json(data, "--judge", scripted)["groups"]
    judge, lexical, floor = group["candidates"]
    assert (judge["claims"]["things"], judge["claims"]["unsupported"]) == (24, 8)
    assert judge["claims"]["confusion"] == {
        "contradicted": {"contradicted": 4},
        "unsupported": {"supported": 4},
        "supported": {"supported": 8, "unsupported": 8},
    }
    assert judge["answers"]["confusion"] == {
        "supported": {"unsupported": 4},
        "unsupported": {"unsupported": 8},
    }
    assert judge["usage"]["calls"] == 12
    assert (lexical["name"], floor["name"]) == ("lexical:lexical-v4", "floor:word-share")
    assert lexical["calibration_error"] is not None
    assert (floor["is_floor"], floor["claims"]["things"], floor["cost"]) == (True, 24, 0.0)
    assert {to for found in floor["claims"]["confusion"].values() for to in found} == {
        "supported",
        "unsupported",
    }


def test_end_to_end_an_answer_passes_by_the_claims_that_the_judge_makes(tmp_path: Path) -> None:
    right, wrong = "Orders can be returned within 14 days.", "The shop is in Bonn."
    rules = {"claims": {wrong: "contradicted"}, "answers": {"14 days. The shop": {"claims": [right]}}}
    (tmp_path / "script.json").write_text(json.dumps(rules))
    made = [
        {
            "contexts": [f"{CHUNK} Row {at}."],
            "answer": " ".join((right, wrong) if at else (wrong, right)),
            "claims": [{"text": right, "label": "supported"}, {"text": wrong, "label": "contradicted"}],
        }
        for at in range(4)
    ]
    data = write(tmp_path / "end.jsonl", made)
    judge = f"scripted:{tmp_path / 'script.json'}"
    [found, *_] = as_json(data, "--judge", judge, "--end-to-end")["groups"][0]["candidates"]
    assert found["answers"]["recall"]["value"] == 1
    assert found["end_to_end"]["recall"]["value"] == 1 / 4  # it makes the wrong claim of one answer
    shown = calibrate(data, "--judge", judge, "--end-to-end").stdout.partition("end to end")[2]
    assert "found 1 of 4 unsupported: recall 0.25" in shown


def test_failures_are_counted_by_type_and_end_in_exit_code_1(tmp_path: Path, data: str) -> None:
    (tmp_path / "down.json").write_text('{"error": "judge_refused"}')
    found = as_json(data, "--judge", f"scripted:{tmp_path / 'down.json'}", exit_code=1)
    judge = found["groups"][0]["candidates"][0]
    assert judge["failures"] == {"judge_refused": 12}
    assert judge["claims"]["things"] == 0
    assert found["recommended"] is None


def test_what_is_recommended_is_saved_for_the_judge_that_was_measured(
    data: str, tmp_path: Path, scripted: str
) -> None:
    file = tmp_path / "judge.json"
    result = calibrate(data, "--judge", scripted, "--save", str(file))
    assert result.exit_code == 0
    saved = read_calibration(file)
    assert (saved.provider, saved.form, saved.threshold) == ("scripted", "json", 0.5)
    assert saved.measured_on.files == ["labeled.jsonl"]
    assert saved.measured_on.claims == 24


def test_examples_come_into_the_page_on_request_and_escaped(data: str, tmp_path: Path, scripted: str) -> None:
    page = tmp_path / "report.html"
    assert calibrate(data, "--judge", scripted, "--out", str(page)).exit_code == 0
    written = page.read_text("utf-8")
    assert not re.search(r"https?://", written)
    assert not any(text in written for text in ("Refunds", "Bonn", "friendly"))
    calibrate(data, "--judge", scripted, "--out", str(page), "--with-examples")
    written = page.read_text("utf-8")
    assert "Refunds take 5 working days." in written
    assert "Staff are &lt;b&gt;friendly&lt;/b&gt;." in written
    assert "Bonn" not in written  # people and the judge agree on that one


SAMPLE = Path(__file__).parents[3] / "examples" / "data" / "ragtruth_qa_sample.jsonl"


def test_the_shipped_sample_says_how_many_of_all_unsupported_claims_were_found() -> None:
    shown = calibrate(str(SAMPLE), "--judge", "lexical").stdout
    assert "found 7 of 18 unsupported: recall 0.39 [0." in shown
    assert "answers that pass, 3 are flawed" in shown


def test_lines_about_the_answer_itself_are_no_claims(tmp_path: Path, scripted: str) -> None:
    lines = [
        "Here's a summary in 92 words:",
        "Sure, here is the answer to your question:",
        "Based on the passages, here is a brief answer on how to return a thing:",
        "(92 words)",
    ]
    kept = [
        "Here are the steps to return a thing:",
        "Here is the shop.",
        "The answer is 14 days.",
        "In 92 words.",
    ]
    made = rows(3)
    made[0]["claims"] += [{"text": text, "label": "supported"} for text in (*lines, *kept)]
    data = write(tmp_path / "announced.jsonl", made)
    found = as_json(data, "--judge", scripted)
    assert found["left_out"] == {"lines about the answer itself": len(lines)}
    assert found["groups"][0]["candidates"][0]["claims"]["things"] == 6 + len(kept)


ONE_KIND = [{"contexts": ["C."], "claims": [{"text": "A.", "label": "supported"}]}]
NOWHERE = "nowhere/file"


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (ONE_KIND, [], "no claim that people call unsupported"),
        (rows(12), ["--limit", "1", "--seed", "3"], "draw more with --limit"),
        (rows(12), ["--save", NOWHERE], "cannot be written"),
        (rows(12), ["--group-by", "topic"], "no row of"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_a_run_needs_is_checked_before_the_first_call(
    tmp_path: Path, given: list[dict[str, Any]], options: list[str], said: str
) -> None:
    if "--limit" in options:  # an answer of which nothing is supported
        given = [{**row, "claims": row["claims"][1:]} for row in given]
    data = write(tmp_path / "labeled.jsonl", given)
    endpoint = PeerEndpoint(replies=["{}"])
    asked = [str(tmp_path / each) if each == NOWHERE else each for each in options]
    async with serving(endpoint):
        at = ("--judge", "openai:m", "--base-url", endpoint.url)
        result = await asyncio.to_thread(calibrate, data, *asked, *at)
    assert (result.exit_code, result.stdout, endpoint.prompts) == (2, "", [])
    assert said in " ".join(result.stderr.split())


def test_ctrl_c_keeps_what_was_measured(data: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with start("calibrate", data, "--judge", "openai:m", "--base-url", url, "--json") as program:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                program.send_signal(signal.SIGINT)
                output, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 130
    assert b"interrupted: the figures are about the 0 of 12 answers so far" in errors
    assert json.loads(output)["groups"][0]["answers"] == 0


def saved(path: Path, **others: object) -> str:
    known = {"provider": "scripted", "model": "scripted", "form": "json", "threshold": 0.3}
    rests_on = {"files": ["labeled.jsonl"], "answers": 12, "claims": 24, "balanced_accuracy": 0.8}
    path.write_text(json.dumps({**known, "answer_threshold": 0.9, "measured_on": rests_on, **others}))
    return str(path)


def test_evaluate_cuts_where_the_calibration_says(data: str, tmp_path: Path, scripted: str) -> None:
    file = saved(tmp_path / "judge.json", answer_threshold=0.4)
    plain = json_lines(run("evaluate", data, "--judge", scripted, "--json").stdout)
    cut = json_lines(run("evaluate", data, "--judge", scripted, "--json", "--calibration", file).stdout)
    assert {line["threshold"] for line in plain} == {None}
    assert {line["threshold"] for line in cut} == {0.4}
    assert {line["evaluator_version"] for line in plain}.isdisjoint(line["evaluator_version"] for line in cut)
    told = run("evaluate", data, "--judge", scripted, "--json", "--calibration", file, "--threshold", "0.7")
    assert {line["threshold"] for line in json_lines(told.stdout)} == {0.7}


def test_a_calibration_of_another_judge_is_refused(data: str, tmp_path: Path, scripted: str) -> None:
    file = saved(tmp_path / "judge.json", provider="openai", model="gpt-4o-mini")
    result = run("evaluate", data, "--judge", scripted, "--calibration", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the calibration is of openai:gpt-4o-mini, and scripted:scripted judges" in result.stderr
