"""``ragtrace evaluate``."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.integration.cli.program import json_lines, run, start
from tests.likely_judge import LIKELY
from tests.patience import PATIENCE_S

CHUNK = "Orders can be returned within 14 days. Refunds take 5 working days."
RIGHT = "Orders can be returned within 14 days."
WRONG = "Orders can be returned within 30 days."


def record(id_: str, answer: str | None = RIGHT) -> dict[str, object]:
    contexts = [{"id": "faq-12", "text": CHUNK}]
    return {"id": id_, "question": "How long?", "contexts": contexts, "answer": answer}


def write(path: Path, records: Iterable[dict[str, object]]) -> str:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), "utf-8")
    return str(path)


@pytest.fixture
def records(tmp_path: Path) -> str:
    return write(
        tmp_path / "records.jsonl", [record("right"), record("wrong", WRONG), record("silent", None)]
    )


@pytest.fixture
def scripted(tmp_path: Path) -> str:
    (tmp_path / "script.json").write_text('{"answers": {"please break": {"error": "judge_timeout"}}}')
    return f"scripted:{tmp_path / 'script.json'}"


def test_people_see_scores_and_under_each_failing_claim_its_evidence(records: str, scripted: str) -> None:
    result = run("evaluate", records, "--judge", scripted)
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].split() == ["id", "score", "label", "explanation"]
    assert lines[1].split()[:3] == ["right", "1.00", "pass"]
    assert lines[2].split()[:3] == ["wrong", "0.00", "fail"]
    assert lines[3] == f"    contradicted  {WRONG}"
    assert lines[4].strip() == f"faq-12: “{RIGHT}”"
    assert max(map(len, lines)) <= 80


def test_an_incidental_flaw_is_told_as_such_and_fails_nothing(tmp_path: Path) -> None:
    fried, diced = "Fry the onions for 5 minutes.", "Fry the diced onions for 5 minutes."
    flaw = {"label": "not_mentioned", "reason": "diced is not mentioned", "material": False}
    (tmp_path / "script.json").write_text(json.dumps({"claims": {diced: flaw}}))
    record = {"id": "r", "question": "How?", "contexts": [fried], "answer": f"{diced} {fried}"}
    (tmp_path / "records.jsonl").write_text(json.dumps(record))
    asked = ("evaluate", str(tmp_path / "records.jsonl"), "--judge", f"scripted:{tmp_path / 'script.json'}")
    lines = [line.strip() for line in run(*asked).stdout.splitlines()]
    assert " ".join(" ".join(lines[1:3]).split()) == "r 0.50 pass 1 of 2 claims flawed only incidentally"
    assert lines[3].startswith("unsupported   incidental: Fry the diced onions")
    reports = (tmp_path / "report.jsonl", tmp_path / "report.html")
    run(*asked, *(word for path in reports for word in ("--out", str(path))))
    told = run("report", "--from", str(reports[0])).stdout
    assert "0.50 [" in told
    assert "100 % [" in told  # it passes there, too
    assert "incidental <bdi>Fry the diced onions" in reports[1].read_text("utf-8")
    old = run(*asked, "--pass-when", "contradicted == 0 and unsupported == 0").stdout
    assert old.splitlines()[1].split()[:3] == ["r", "0.50", "fail"]


def test_the_summary_adds_up_and_names_its_denominators(records: str, scripted: str) -> None:
    summary = run("evaluate", records, "--judge", scripted).stdout.partition("\n\n")[2]
    assert [line.rstrip() for line in summary.splitlines()] == [
        "faithfulness (profile ragtrace): 3 records",
        "  scored   2 (pass 1, fail 1), mean score 0.50 over these 2",
        "  pass is  material_contradicted == 0 and material_unsupported == 0 and",
        "           coverage >= 0.5",
        "  skipped  1 (no_content 1)",
        "  errors   0",
        "  claims   2 (supported 1, contradicted 1, unsupported 0, unjudged 0)",
        "  calls    4 to the judge",
    ]


def test_machines_get_a_line_a_record_and_metric_in_order(records: str, scripted: str) -> None:
    right, wrong, silent = json_lines(run("evaluate", records, "--judge", scripted, "--json").stdout)
    keys = {"id", "metric", "profile", "score", "status", "label", "verdicts", "calls", "tokens"}
    assert keys <= set(right) & set(silent)
    assert (right["id"], right["score"], right["status"], right["label"]) == ("right", 1.0, "ok", "pass")
    assert (wrong["score"], wrong["label"], wrong["calls"]) == (0.0, "fail", 2)
    assert (silent["score"], silent["status"], silent["label"]) == (None, "skipped", "skipped")
    assert "judge: scripted" in run("evaluate", records, "--judge", scripted, "--json").stderr


def test_without_a_key_the_judge_is_the_heuristic_and_that_is_said(records: str) -> None:
    result = run("evaluate", records)
    assert result.exit_code == 0
    assert "judge: lexical" in result.stderr
    assert "heuristic" in result.stderr


def test_a_record_that_the_judge_fails_on_has_no_score_and_the_exit_code_is_1(
    tmp_path: Path, scripted: str
) -> None:
    path = write(tmp_path / "records.jsonl", [record("broken", "Please break."), record("right")])
    result = run("evaluate", path, "--judge", scripted, "--json")
    broken, right = json_lines(result.stdout)
    assert result.exit_code == 1
    assert (broken["score"], broken["status"], broken["label"]) == (None, "error", "error")
    assert broken["explanation"] == "the script says judge_timeout"
    assert right["label"] == "pass"


def test_a_mean_of_exactly_the_mark_reaches_it(tmp_path: Path, scripted: str) -> None:
    wrong = [record(f"wrong {n}", f"{RIGHT} {WRONG}") for n in range(6)]  # 6 of 0.5 and 4 of 1
    path = write(tmp_path / "records.jsonl", [*wrong, *(record(f"right {n}") for n in range(4))])
    passed = run("evaluate", path, "--judge", scripted, "--fail-under", "0.7")
    failed = run("evaluate", path, "--judge", scripted, "--fail-under", "0.7001")
    assert (passed.exit_code, failed.exit_code) == (0, 1)
    assert "must reach 0.7001, and the mean is 0.7" in failed.stderr


def test_the_cost_of_a_record_is_told_once_for_all_metrics(records: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[likely]\ndear = { input = 1000.0, output = 0.0 }\n")  # a dollar a call
    dear = (f"judge.use={LIKELY}dear", f"judge.prices={prices}")
    metrics = "faithfulness,hallucination,answer_relevance"
    command = ("evaluate", records, "--metrics", metrics, "--json", "--set", dear[0], "--set", dear[1])
    lines = json_lines(run(*command).stdout)
    assert [line.get("cost_usd", "") for line in lines] == [3.0, "", "", 3.0, "", "", 0.0, "", ""]
    assert {"relevance", "verify"} <= {step["step"] for line in lines[:3] for step in line["steps"]}


def test_the_environment_names_a_profile_which_an_option_overrides(
    records: str, scripted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGTRACE_PROFILE", "deepeval-4")
    command = ("evaluate", records, "--judge", scripted, "--json")
    assert {line["profile"] for line in json_lines(run(*command).stdout)} == {"deepeval-4"}
    own = run(*command, "--profile", "ragtrace")
    assert {line["profile"] for line in json_lines(own.stdout)} == {"ragtrace"}
    monkeypatch.setenv("RAGTRACE_PROFILE", "rages")
    refused = run(*command)
    assert (refused.exit_code, "RAGTRACE_PROFILE" in refused.stderr) == (2, True)


def test_fail_under_fails_where_nothing_was_scored(tmp_path: Path, scripted: str) -> None:
    path = write(tmp_path / "records.jsonl", [record("silent", None)])
    result = run("evaluate", path, "--judge", scripted, "--fail-under", "0")
    assert (result.exit_code, "nothing was scored" in result.stderr) == (1, True)


def test_a_narrow_terminal_shows_whole_scores(records: str, scripted: str) -> None:
    columns = 40
    output = run("evaluate", records, "--judge", scripted, columns=columns).stdout
    assert {" 0.00 ", " 1.00 "} <= set(re.findall(r" \d\.\d\d ", output))
    assert max(map(len, output.splitlines())) <= columns


def test_a_table_without_rows_has_no_head(tmp_path: Path) -> None:
    result = run("evaluate", write(tmp_path / "traces.jsonl", [{"resourceSpans": []}]), "--judge", "lexical")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ragtrace explain" in result.stderr


def test_no_records_are_no_failure(tmp_path: Path, scripted: str) -> None:
    result = run("evaluate", write(tmp_path / "empty.jsonl", []), "--judge", scripted)
    assert (result.exit_code, "empty.jsonl has no records" in result.stderr) == (0, True)
    assert run("evaluate", "-", "--judge", scripted, "--json", stdin="").output.startswith("judge: ")


@pytest.mark.slow
def test_a_result_is_there_before_the_next_record_is_typed(scripted: str) -> None:
    with start("evaluate", "-", "--judge", scripted, "--json", stdin=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for number in ("one", "two"):
            program.stdin.write(json.dumps(record(number)).encode() + b"\n")
            program.stdin.flush()
            assert json.loads(program.stdout.readline())["id"] == number
        program.stdin.close()
        assert program.wait(timeout=PATIENCE_S) == 0


@pytest.mark.slow
def test_ctrl_c_ends_it_while_it_waits_for_the_judge(records: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with start("evaluate", records, "--judge", "openai:some-model", "--base-url", url) as program:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                program.send_signal(signal.SIGINT)
                _, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 130
    assert errors.splitlines()[-1] == b"Interrupted."
    assert b"Traceback" not in errors


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    form = ()
    path = write(tmp_path / "many.jsonl", (record(str(number)) for number in range(2_000)))
    with start("evaluate", path, "--judge", "lexical", *form) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline()
        program.stdout.close()
        errors = program.stderr.read()
    assert program.returncode != 0
    assert b"Traceback" not in errors
    assert b"BrokenPipe" not in errors


def test_a_bad_row_is_left_out_with_what_to_do_and_the_others_are_judged(
    tmp_path: Path, scripted: str
) -> None:
    path = tmp_path / "records.jsonl"
    bad = [
        '{"question": "SECRET", "contexts": [5], "answer": "a"}',
        '{"contexts": [["SECRET"]], "answer": "a"}',
        '{"contexts": ["SECRET"], "context": "other", "answer": "a"}',
        "question,answer",
        json.dumps(record("one")),
    ]
    path.write_text("\n".join([json.dumps(record("one")), *bad, json.dumps(record("last"))]))
    result = run("evaluate", str(path), "--judge", scripted, "--json")
    assert [line["id"] for line in json_lines(result.stdout)] == ["one", "last"]
    assert result.exit_code == 2
    for number, said in enumerate(
        [
            "`contexts.0`: must be a string",
            "`contexts.0`: must be",
            "keep one of them",
            "is not JSON",
            "unique",
        ],
        start=2,
    ):
        [told] = [line for line in result.stderr.splitlines() if f"{path}, line {number}:" in line]
        assert told.startswith("left out: ")
        assert said in told
    assert "failed: 5 rows could not be read" in result.stderr
    assert "SECRET" not in result.output


def test_a_field_that_nobody_knows_is_said_once_with_the_one_that_was_meant(
    tmp_path: Path, scripted: str
) -> None:
    rows = [{**record(str(at)), "contxts": ["x"], "source": "z"} for at in range(3)]
    result = run("evaluate", write(tmp_path / "records.jsonl", rows), "--judge", scripted, "--json")
    assert result.exit_code == 0
    [told] = [line for line in result.stderr.splitlines() if "unknown" in line]
    assert "`contxts` (did you mean `contexts`?)" in told
    assert "`source`" in told


def test_many_bad_rows_are_counted_and_the_first_are_named(tmp_path: Path, scripted: str) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text("question,answer\n" * 500)
    result = run("evaluate", str(path), "--judge", scripted, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "500 rows, and none is readable" in result.stderr
    assert len(result.stderr.splitlines()) < 30
