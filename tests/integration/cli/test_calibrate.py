"""``ragtrace calibrate``."""

from __future__ import annotations

import base64
import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ragtrace.calibration.saved import read_calibration
from tests.integration.cli.program import json_lines, run, start

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
            "contexts": [CHUNK],
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
    return write(tmp_path / "labelled.jsonl", rows(12))


@pytest.fixture
def scripted(tmp_path: Path) -> str:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    return f"scripted:{tmp_path / 'script.json'}"


def calibrate(*args: str) -> Result:
    return run("calibrate", *args, "--resamples", "100")


def as_json(*args: str, exit_code: int = 0) -> dict[str, Any]:
    result = calibrate(*args, "--json")
    assert result.exit_code == exit_code, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_people_see_figures_with_intervals_and_what_follows_in_80_columns(data: str, scripted: str) -> None:
    result = calibrate(data, "--judge", scripted)
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "labelled.jsonl: 12 of 12 answers"
    assert re.search(r"24 claims +100 % +0\.50 \[0\.\d\d, 0\.\d\d\]", result.stdout)
    assert "lexical:lexical-v2 (the floor)" in result.stdout
    assert "What follows" in lines
    assert "Against lexical:lexical-v2" in result.stdout
    assert max(map(len, lines)) <= 80
    assert "12 of 12 answers" in result.stderr


def test_machines_get_one_object_with_counts_that_add_up(data: str, scripted: str) -> None:
    [group] = as_json(data, "--judge", scripted)["groups"]
    judge, floor = group["candidates"]
    assert (judge["claims"]["things"], judge["claims"]["unsupported"]) == (24, 8)
    assert judge["claims"]["confusion"] == {
        "contradicted": {"contradicted": 4},
        "neutral": {"supported": 4},
        "supported": {"supported": 8, "unsupported": 8},
    }
    assert judge["answers"]["confusion"] == {
        "supported": {"unsupported": 4},
        "unsupported": {"unsupported": 8},
    }
    assert judge["usage"]["calls"] == 12
    assert (floor["is_floor"], floor["claims"]["things"], floor["cost"]) == (True, 24, 0.0)


def test_the_floor_may_be_left_out(data: str, scripted: str) -> None:
    found = as_json(data, "--judge", scripted, "--no-floor")
    assert [each["is_floor"] for each in found["groups"][0]["candidates"]] == [False]
    assert len(as_json(data, "--judge", "lexical")["groups"][0]["candidates"]) == 1


def test_files_are_measured_apart_and_together(data: str, tmp_path: Path, scripted: str) -> None:
    other = write(tmp_path / "other.jsonl", rows(6))
    groups = as_json(data, other, "--judge", scripted)["groups"]
    assert [(group["name"], group["answers"]) for group in groups] == [
        ("labelled.jsonl", 12),
        ("other.jsonl", 6),
        ("all files together", 18),
    ]


def test_a_limit_draws_a_sample_that_is_said(tmp_path: Path, scripted: str) -> None:
    good = [row for row in rows(60) if row["claims"][1]["label"] == "supported"]
    data = write(tmp_path / "rare.jsonl", [*good, *rows(3)[1:2]])
    found = as_json(data, "--judge", scripted, "--limit", "6")
    [group] = found["groups"]
    assert (found["sampled"], group["answers"], group["of_answers"]) == (True, 6, 21)
    assert group["candidates"][0]["claims"]["unsupported"] == 1
    shown = calibrate(data, "--judge", scripted, "--limit", "6").stdout
    assert shown.startswith("rare.jsonl: 6 of 21 answers")
    assert "A sample: answers with an unsupported claim" in shown


def test_runs_in_other_orders_tell_how_often_verdicts_flip(data: str, scripted: str) -> None:
    judge = as_json(data, "--judge", scripted, "--runs", "3")["groups"][0]["candidates"][0]
    assert judge["flips"]["value"] == 0
    assert judge["usage"]["calls"] == 36
    shown = calibrate(data, "--judge", scripted, "--runs", "3").stdout
    assert "0 % of the verdicts are not the same in 3 runs" in shown


def test_end_to_end_the_judge_words_the_claims(data: str, scripted: str) -> None:
    judge = as_json(data, "--judge", scripted, "--end-to-end")["groups"][0]["candidates"][0]
    assert judge["end_to_end"]["things"] == 12
    assert judge["usage"]["calls"] == 36


PRICED_JUDGE = """
from ragtrace.judge import ScriptedJudge
from ragtrace.model import JudgeIdentity

class Priced(ScriptedJudge):
    identity = JudgeIdentity(provider="some", model="model")

def open_it(settings):
    return Priced()
"""


def test_what_the_judge_cost_follows_the_prices_that_are_given(data: str, tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(PRICED_JUDGE)
    prices = tmp_path / "prices.toml"
    prices.write_text('as_of = "today"\n[some.model]\ninput = 1000.0\noutput = 0.0\n')
    judge = f"{tmp_path / 'judge.py'}:open_it"
    assert as_json(data, "--judge", judge)["groups"][0]["candidates"][0]["cost"] is None
    priced = as_json(data, "--judge", judge, "--prices", str(prices))["groups"][0]["candidates"][0]
    assert priced["cost"] == pytest.approx(priced["usage"]["input_tokens"] / 1000)


def test_headings_may_be_left_out(tmp_path: Path, scripted: str) -> None:
    [row] = rows(1)
    row["claims"].append({"text": "**Returns**", "label": "supported"})
    data = write(tmp_path / "headed.jsonl", [row])
    found = as_json(data, "--judge", scripted, "--statements-only")
    assert found["groups"][0]["candidates"][0]["claims"]["things"] == 2
    assert found["left_out"] == {"claims that state nothing": 1}


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
    assert saved.measured_on.files == ["labelled.jsonl"]
    assert saved.measured_on.claims == 24


@pytest.mark.slow
def test_the_page_holds_a_plot_and_no_text_under_judgment(data: str, tmp_path: Path, scripted: str) -> None:
    page = tmp_path / "report.html"
    assert calibrate(data, "--judge", scripted, "--report", str(page)).exit_code == 0
    written = page.read_text("utf-8")
    before, _, rest = written.partition("data:image/svg+xml;base64,")
    plot, _, after = rest.partition('"')
    picture = base64.b64decode(plot, validate=True).decode()
    assert picture.startswith("<svg")
    for shown in (before + after, picture):
        assert "lexical:lexical-v2" in shown
        assert not re.search(r"https?://(?!www\.w3\.org/)", shown)
        assert not any(text in shown for text in ("Refunds", "Bonn", "friendly"))


@pytest.mark.slow
def test_examples_come_into_the_page_on_request_and_escaped(data: str, tmp_path: Path, scripted: str) -> None:
    page = tmp_path / "report.html"
    calibrate(data, "--judge", scripted, "--report", str(page), "--with-examples")
    written = page.read_text("utf-8")
    assert "Refunds take 5 working days." in written
    assert "Staff are &lt;b&gt;friendly&lt;/b&gt;." in written
    assert "Bonn" not in written  # people and the judge agree on that one


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "line 1: is not JSON"), ('{"contexts": ["C"]}', "line 1: field `claims`: is missing")],
)
def test_a_bad_row_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line)
    result = calibrate(str(path), "--judge", "lexical")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_rows_without_labels_cannot_be_measured(tmp_path: Path) -> None:
    data = write(tmp_path / "bare.jsonl", [{"contexts": ["C"], "claims": [{"text": "A.", "label": None}]}])
    result = calibrate(data, "--judge", "lexical")
    assert result.exit_code == 2
    assert "no labelled claim" in result.stderr


def test_an_unknown_form_is_refused(data: str) -> None:
    result = calibrate(data, "--judge", "lexical", "--forms", "yes")
    assert result.exit_code == 2
    assert "json, logprobs" in result.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(data: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with start("calibrate", data, "--judge", "openai:m", "--base-url", url, "--json") as program:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                program.send_signal(signal.SIGINT)
                output, errors = program.communicate(timeout=30)
    assert program.returncode == 130
    assert b"interrupted: the figures are about the 0 of 12 answers so far" in errors
    assert json.loads(output)["groups"][0]["answers"] == 0


def saved(path: Path, **others: object) -> str:
    known = {"provider": "scripted", "model": "scripted", "form": "json", "threshold": 0.3}
    rests_on = {"files": ["labelled.jsonl"], "answers": 12, "claims": 24, "balanced_accuracy": 0.8}
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


@pytest.mark.parametrize(
    ("others", "said"),
    [({"threshold": 2}, "wrong at threshold"), ({"form": "xml"}, "wrong at form"), ({"x": 1}, "wrong at x")],
)
def test_a_broken_calibration_is_named(
    data: str, tmp_path: Path, scripted: str, others: dict[str, object], said: str
) -> None:
    file = saved(tmp_path / "judge.json", **others)
    result = run("evaluate", data, "--judge", scripted, "--calibration", file)
    assert (result.exit_code, said in result.stderr) == (2, True)
