"""``ragtrace evaluate``."""

# ruff: noqa: RUF001  the languages have their own letters
from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from ragtrace.cli import INTERRUPTED
from ragtrace.cli.backfill_run import OVER_BUDGET
from ragtrace.metrics.judge_card import CardSet, IntervalEstimate, JudgeCard
from ragtrace.traces.otlp import decode_json, encode_json
from ragtrace_collector.config import parse_config
from ragtrace_collector.judge import open_evaluator
from tests.conformance.peer_cases import read_cases
from tests.conformance.peer_endpoint import PeerEndpoint, serving
from tests.integration.cli.program import Result, json_lines, run, start
from tests.integration.collector.paid_judge import PAID, paid, prices
from tests.integration.judge.conftest import Endpoint, chat
from tests.integration.judge.conftest import serving as serving_endpoint
from tests.integration.judge.test_endpoints import request
from tests.likely_judge import LIKELY
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace
from tests.tiny_verifiers import Verifier
from tests.unit.backfill.stored_traces import RIGHT, WRONG, plain_trace, trace_id, write_traces
from tests.unit.backfill.stored_traces import rag_trace as stored_trace
from tests.unit.reports.reading import Page, csv_rows, json_rows, parquet_rows

CHUNK = "Orders can be returned within 14 days. Refunds take 5 working days."


def record(id_: str, answer: str | None = RIGHT) -> dict[str, object]:
    contexts = [{"id": "faq-12", "text": CHUNK}]
    return {"id": id_, "question": "How long?", "contexts": contexts, "answer": answer}


def write(path: Path, *records: Mapping[str, object]) -> str:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), "utf-8")
    return str(path)


@pytest.fixture
def records(tmp_path: Path) -> str:
    return write(tmp_path / "records.jsonl", record("right"), record("wrong", WRONG), record("silent", None))


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
        "  claims   2 (contradicted 1, supported 1)",
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
    path = write(tmp_path / "records.jsonl", record("broken", "Please break."), record("right"))
    result = run("evaluate", path, "--judge", scripted, "--json")
    broken, right = json_lines(result.stdout)
    assert result.exit_code == 1
    assert (broken["score"], broken["status"], broken["label"]) == (None, "error", "error")
    assert broken["explanation"] == "the script says judge_timeout"
    assert right["label"] == "pass"


def test_a_mean_of_exactly_the_mark_reaches_it(tmp_path: Path, scripted: str) -> None:
    wrong = [record(f"wrong {n}", f"{RIGHT} {WRONG}") for n in range(6)]  # 6 of 0.5 and 4 of 1
    path = write(tmp_path / "records.jsonl", *wrong, *(record(f"right {n}") for n in range(4)))
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
    path = write(tmp_path / "records.jsonl", record("silent", None))
    result = run("evaluate", path, "--judge", scripted, "--fail-under", "0")
    assert (result.exit_code, "nothing was scored" in result.stderr) == (1, True)


def test_a_table_without_rows_has_no_head(tmp_path: Path) -> None:
    result = run("evaluate", write(tmp_path / "traces.jsonl", {"resourceSpans": []}), "--judge", "lexical")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ragtrace explain" in result.stderr


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
def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    path = write(tmp_path / "many.jsonl", *(record(str(number)) for number in range(2_000)))
    with start("evaluate", path, "--judge", "lexical") as program:
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
            *("`contexts.0`: must be a string", "`contexts.0`: must be", "keep one of them"),
            *("is not JSON", "unique"),
        ],
        start=2,
    ):
        [told] = [line for line in result.stderr.splitlines() if f"{path}, line {number}:" in line]
        assert told.startswith("left out: ")
        assert said in told
    assert "failed: 5 rows could not be read" in result.stderr
    assert "SECRET" not in result.output


def test_many_bad_rows_are_counted_and_the_first_are_named(tmp_path: Path, scripted: str) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text("question,answer\n" * 500)
    result = run("evaluate", str(path), "--judge", scripted, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "500 rows, and none is readable" in result.stderr
    assert len(result.stderr.splitlines()) < 30


RECORD = {
    "id": "returns",
    "question": "How long can I return an order?",
    "contexts": [
        {"id": "faq-12", "text": "Orders can be returned within 14 days."},
        {"id": "faq-3", "text": "The shop is open on Sundays between nine and five, " * 4},
    ],
    "answer": "Orders can be returned within 30 days. Our cat is called Tom.",
    "reference": "Within 14 days. Refunds go to the card.",
}
METRICS = (
    "faithfulness,hallucination,groundedness,answer_relevance,context_precision,context_recall,rag_score"
)


@pytest.fixture
def many(tmp_path: Path) -> str:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(RECORD))
    return str(path)


def test_people_see_each_record_with_a_row_a_metric_and_each_fault_once(many: str) -> None:
    output = run("evaluate", many, "--judge", "scripted", "--metrics", METRICS).stdout
    lines = [line.rstrip() for line in output.partition("\n\n")[0].splitlines()]
    assert lines[0].split() == ["id,", "metric", "score", "label", "explanation"]
    assert lines[1] == "returns"
    assert [line.split()[0] for line in lines if line[:2] == "  " and line[2] != " "] == METRICS.split(",")
    assert max(map(len, lines)) <= 80
    for said in (
        "contradicted  Orders can be returned within 30 days.",
        "unsupported   Our cat is called Tom.",
        "chunk 2, faq-3: The shop is open",
    ):
        assert output.count(said) == 1, said
    for said in (
        "unsupported   reference: Refunds go to the card.",
        "chunks   2 (irrelevant 2)",
        "claims   2 (relevant 2)",
        "mean score 0.50 over these 1, lower is better",
    ):
        assert said in output, said
    calls, _, told = output.splitlines()[-1].partition(" ")
    assert (int(calls) <= 5, told) == (True, "calls to the judge in all: metrics share steps")


def test_a_gate_knows_which_way_a_metric_is_good(many: str) -> None:
    result = run("evaluate", many, "--judge", "scripted", "--metrics", "hallucination", "--fail-under", "0.6")
    assert result.exit_code == 1
    assert "must stay at 0.4 or below, and the mean is 0.5\n" in result.stderr


ROW = {
    "id": "a",
    "question": "How long do refunds take?",
    "contexts": ["Our shop opened in 1998. It is blue. Refunds take 14 days. We sell shoes. Come by!"],
    "answer": "Refunds take 14 days.",
}


def test_a_page_opens_a_number_down_to_its_steps_and_questions(tmp_path: Path) -> None:
    cases, page, rows = write(tmp_path / "cases.jsonl", ROW), tmp_path / "page.html", tmp_path / "rows.jsonl"
    metrics = ("--metrics", "question_similarity", "--set", "judge.embedder=wordllama")
    run("evaluate", cases, "--judge", "scripted", *metrics, "--out", str(page), "--out", str(rows))
    (row,) = json_lines(rows.read_text())
    (metric,) = row["judged"]["evaluation"]["outcomes"]
    (question,) = metric["intermediate"]["questions"]
    (similarity,) = metric["intermediate"]["similarities"]
    text = page.read_text()
    assert "How the numbers were made" in text
    assert question in text
    assert f"<b><bdi>{similarity:.3f}</bdi></b>" in text
    assert [run["step"] for run in metric["steps"]] == ["questions", "embed"]
    assert "<li><bdi>questions: " in text


REFUSALS = [
    "There is nothing in the context about that.",
    "Îmi pare rău, dar contextul nu conține această informație.",
    "Στο κείμενο δεν υπάρχει αυτή η πληροφορία.",
    "Samahani, sina habari hiyo.",
    "متأسفم، این اطلاعات در متن موجود نیست.",
    "மன்னிக்கவும், கொடுக்கப்பட்ட தகவலில் பதில் இல்லை.",
    "Das kann ich anhand der Unterlagen leider nicht sagen.",
    "Désolé, les documents ne mentionnent pas ce point.",
    "Los documentos no mencionan los gastos de envío.",
    "К сожалению, в документах об этом ничего не сказано.",
    "申し訳ありませんが、その情報は見つかりませんでした。",
    "抱歉，文档中没有相关信息。",
    "문서에서 해당 정보를 찾을 수 없습니다.",
    "لا توجد معلومات حول ذلك في السياق.",
    "मुझे इसकी जानकारी नहीं है।",
    "Belgelerde bu bilgi yer almıyor.",
    "I'm afraid the sources say nothing about it. Please contact our support.",
    "N/A",
]
SAME_NUMBERS = [
    ("The plate is 2,75 mm thick.", "The plate is 2.75 mm thick."),
    ("The house cost 1’250’000 francs.", "The house cost 1250000 francs."),
    ("The fund has Rs 3,45,00,000 in its account.", "The fund has Rs 34500000 in its account."),
    ("The museum opens at 14:30 on Sundays.", "The museum opens at 2:30 pm on Sundays."),
    ("The warranty lasts 3 weeks from delivery.", "The warranty lasts 21 days from delivery."),
    ("Sales rose to 3.2 billion dollars last year.", "Sales rose to $3,200,000,000 last year."),
    ("The fair of the town opens on 2026-03-04.", "The fair of the town opens on March 4, 2026."),
    ("The fair of the town opens on 04.03.2026.", "The fair of the town opens on 4 March 2026."),
    ("The clay oven reaches 180 °C in an hour.", "The clay oven reaches 180 degrees Celsius in an hour."),
    ("The speed limit there is 100 km/h.", "The speed limit there is 62 mph."),
    ("A file may have 2 GB at most.", "A file may have 2048 MB at most."),
    ("A dozen fresh eggs cost 3 dollars.", "12 fresh eggs cost 3 dollars."),
    ("この部屋の価格は1万2000円です。", "この部屋の価格は12,000円です。"),
]
OTHER_NUMBERS = [
    ("The lab is kept at -8 °C during the night.", "The lab is kept at 8 °C during the night."),
    ("The plate is 2,75 mm thick.", "The plate is 275 mm thick."),
    ("The museum opens at 14:30 on Sundays.", "The museum opens at 2:30 am on Sundays."),
    ("The tunnel is 7 km long in all.", "The tunnel is 7 m long in all."),
    ("The fair of the town opens on 2026-03-04.", "The fair of the town opens on March 5, 2026."),
    ("The speed limit there is 100 km/h.", "The speed limit there is 100 mph."),
    ("A file may have 2 GB at most.", "A file may have 2 TB at most."),
    ("In 2019 Spain beat many strong teams twice.", "In 2019 France beat many strong teams twice."),
]
FACT = "Orders are shipped within four working days of payment."
MARKED = [
    *("[7]", "[2][9]", "[1, 4-6]", "【12:3†terms.pdf】", "(Jones et al., 2021)", "[terms.v2.docx]"),
    *("(Source: terms.pdf, p. 31)", "(S. 44)", "(Quelle: AGB, Seite 8)", "[^5]", "<sup>6</sup>"),
    *("[terms](https://shop.example/t/8812)", "https://shop.example/t/8812", "(see terms_12.pdf#page=3)"),
]


def judged(folder: Path, pairs: list[tuple[str, str]]) -> list[str]:
    """Return how each answer ends against its chunk: ``pass``, ``fail``, or why it has no score."""
    rows = [{"question": "?", "contexts": [chunk], "answer": answer} for chunk, answer in pairs]
    file = folder / "records.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    said = run("evaluate", str(file), "--judge", "lexical", "--json").output
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(lines) == len(pairs)
    return [line["skip_reason"] or line["label"] for line in lines]


def test_a_refusal_in_any_of_many_languages_has_no_score(tmp_path: Path) -> None:
    ends = judged(tmp_path, [(FACT, refusal) for refusal in REFUSALS])
    assert [said for said, end in zip(REFUSALS, ends, strict=True) if end != "refusal"] == []


def test_what_answers_beside_a_refusal_is_judged(tmp_path: Path) -> None:
    answers = [
        f"I am not sure, but {FACT.lower().replace('four', '9')}",
        f"{FACT} I have no information about returns.",
    ]
    assert judged(tmp_path, [(FACT, answer) for answer in answers]) == ["fail", "pass"]


def test_a_number_in_another_form_is_the_same(tmp_path: Path) -> None:
    ends = judged(tmp_path, SAME_NUMBERS)
    assert [pair for pair, end in zip(SAME_NUMBERS, ends, strict=True) if end == "fail"] == []
    assert ends.count("pass") >= len(SAME_NUMBERS) // 2


def test_another_number_never_passes(tmp_path: Path) -> None:
    ends = judged(tmp_path, OTHER_NUMBERS)
    assert [pair for pair, end in zip(OTHER_NUMBERS, ends, strict=True) if end == "pass"] == []


def test_marks_of_sources_and_numbers_of_steps_are_no_facts(tmp_path: Path) -> None:
    answers = [f"Step 1: {FACT.rstrip('.')} {mark}." for mark in MARKED]
    ends = judged(tmp_path, [(FACT, answer) for answer in answers])
    assert [answer for answer, end in zip(answers, ends, strict=True) if end != "pass"] == []


def test_thoughts_and_json_around_an_answer_are_no_claims(tmp_path: Path) -> None:
    wrapped = [f"<think>Was it 9 days? No.</think>{FACT}", json.dumps({"answer": FACT, "confidence": 0.87})]
    assert judged(tmp_path, [(FACT, answer) for answer in wrapped]) == ["pass", "pass"]


FAITHFUL = [case for case in read_cases() if (case.metric, case.profile) == ("faithfulness", "deepeval-4")]


async def run_at(endpoint: PeerEndpoint, *arguments: str) -> Result:
    async with serving(endpoint):
        return await asyncio.to_thread(
            run, "evaluate", *arguments, "--judge", "openai:m", "--base-url", endpoint.url, "--json"
        )


@pytest.mark.slow
async def test_a_line_a_record_says_what_the_peer_reports(tmp_path: Path) -> None:
    rows = [case.row for case in FAITHFUL]
    replies = [reply for case in FAITHFUL for reply in case.replies]
    cases = write(tmp_path / "cases.jsonl", *rows)
    options = ("--profile", "deepeval-4", "--peer-prompts", "--concurrency", "1")
    result = await run_at(PeerEndpoint(replies=replies), cases, *options)
    assert result.exit_code == 1  # one of them is an error
    said = [(line["id"], line["compat_status"], line["compat_score"]) for line in json_lines(result.stdout)]
    assert said == [(c.case["id"], c.status, pytest.approx(c.expected["score"])) for c in FAITHFUL]


NEXT = "The answer names the next step"
THANKS = "The answer thanks the customer"
ROW_CRITERIA = {
    "id": "a",
    "question": "How long do refunds take?",
    "contexts": [{"id": "faq", "text": "Refunds take 14 days."}],
    "answer": "Refunds take 14 days. Then call the shop.",
}
SCRIPT = {
    "criteria": {
        NEXT: {"met": True, "quote": "then CALL the shop", "reason": "it says whom to call"},
        THANKS: {"met": False, "quote": "Thank you!", "reason": "no thanks"},
    },
    "claims": {"Then call the shop.": {"label": "supported", "chunks": [1], "quote": "Refunds take 14 days"}},
}


def judge_of_criteria(folder: Path) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return f"scripted:{path}"


def test_criteria_are_judged_in_one_call_beside_other_metrics(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", ROW_CRITERIA)
    asked = ("--criterion", f"next_step={NEXT}", "--criterion", THANKS)
    result = run("evaluate", cases, "--judge", judge_of_criteria(tmp_path), *asked)
    assert result.exit_code == 0
    assert "next_step                        1.00  pass     criterion met" in result.stdout
    assert "the_answer_thanks_the_customer   0.00  fail     criterion not met" in result.stdout
    assert "not met       The answer thanks the customer" in result.stdout
    assert "no thanks" in result.stdout
    assert "3 calls to the judge in all" in result.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "is empty: say what the answer must do"),
        (
            "groundedness=The answer is true",
            "'groundedness' is a metric of its own: give the criterion another",
        ),
        ("答案说明下一步", "no name can be made of the criterion's words: write NAME=TEXT"),
    ],
)
def test_a_criterion_that_cannot_be_asked_is_refused(tmp_path: Path, given: str, said: str) -> None:
    cases = write(tmp_path / "cases.jsonl", ROW_CRITERIA)
    result = run("evaluate", cases, "--judge", "scripted", "--criterion", given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())


def test_a_judge_that_compares_texts_is_refused_at_the_start(tmp_path: Path) -> None:
    cases, kept = write(tmp_path / "cases.jsonl", ROW_CRITERIA), tmp_path / "kept.db"
    asked = ("--criterion", f"next_step={NEXT}")
    run("evaluate", cases, "--judge", judge_of_criteria(tmp_path), *asked, "--transcripts", str(kept))
    verifier = f"nli:{Verifier(family='hhem').write(tmp_path / 'model')}"
    for judge, command in (
        ("lexical", ("evaluate", cases, *asked)),
        ("lexical", ("rejudge", "--transcripts", str(kept), "--judge", "lexical")),
        ("nli", ("evaluate", cases, *asked, "--judge", verifier)),
    ):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (2, ""), command
        told = f"the judge `{judge}` compares texts and cannot answer a criterion: name a language model"
        assert " ".join(result.stderr.split()).count(told) == 1, command


def test_kept_criteria_pass_by_another_rule_together_or_alone(tmp_path: Path) -> None:
    cases, kept = write(tmp_path / "cases.jsonl", ROW_CRITERIA), str(tmp_path / "judged.db")
    asked = ("--criterion", f"next_step={NEXT}", "--criterion", f"thanks={THANKS}")
    run("evaluate", cases, "--judge", judge_of_criteria(tmp_path), *asked, "--transcripts", kept)
    again = ("rejudge", "--transcripts", kept, "--json", "--threshold", "0")
    (told,) = json_lines(run(*again).stdout)
    assert {each["metric"]: each["to_pass"] for each in told["metrics"]} == {
        "faithfulness": 0,
        "next_step": 0,
        "thanks": 1,
    }
    (told,) = json_lines(run(*again, "--metrics", "thanks").stdout)  # it was asked with the other
    assert (told["not_in_transcript"], [each["to_pass"] for each in told["metrics"]]) == (0, [1])


def labeled(folder: Path) -> str:
    """Return a file of twelve answers; people say that six meet the criterion, the judge that seven do."""
    rows = [
        {
            "question": "How long?",
            "answer": f"Case {at}. " + ("The next step: call the shop." if at < 7 else "Bye."),
            "criteria": [{"text": NEXT, "label": at < 6}],
        }
        for at in range(12)
    ]
    return write(folder / "labeled.jsonl", *rows)


def test_a_judge_of_criteria_is_calibrated_like_one_of_claims(tmp_path: Path) -> None:
    rows = labeled(tmp_path)
    result = run("calibrate", rows, "--judge", "scripted", "--json")
    [judge] = json.loads(result.stdout)["groups"][0]["candidates"]  # no floor: it compares claims with chunks
    assert judge["claims"]["things"] == 12
    shown = run("calibrate", rows, "--judge", "scripted").stdout
    assert "12 verdicts" in shown
    assert "found 5 of 6 not met" in shown
    assert "What follows" not in shown


@pytest.mark.parametrize("content", [True, False])
def test_a_criterion_is_a_setting_that_carriers_name_even_without_texts(
    tmp_path: Path, content: bool
) -> None:
    source, out = tmp_path / "traces.jsonl", tmp_path / "out.jsonl"
    spans = rag_trace(0, question="How long do refunds take?", answer=str(ROW_CRITERIA["answer"]))
    source.write_text(encode_json(spans))
    asked = ("--criterion", f"next_step={NEXT}", "--set", f"attach.content={str(content).lower()}")
    places = ("--from", f"otlp-file:{source}", "--to", f"otlp-file:{out}")
    assert run("backfill", *places, "--judge", judge_of_criteria(tmp_path), *asked).exit_code == 0
    (carrier,) = [span for line in out.read_text().splitlines() for span in decode_json(line)]
    (verdict,) = [dict(each.attributes) for each in carrier.events if each.name == "ragtrace.claim.met"]
    assert verdict["ragtrace.claim.assertion"] == NEXT
    texts = ("Then call the shop", "it says whom to call") if content else (None, None)
    assert (verdict.get("ragtrace.claim.quote"), verdict.get("ragtrace.claim.reason")) == texts


ROW_CARD = {"question": "How long?", "contexts": ["Refunds take 14 days."], "answer": "Refunds take 14 days."}


def a_card(path: Path, *, auc: float, **figures: IntervalEstimate) -> str:
    known = {"auc": IntervalEstimate(value=auc), "floor_auc": IntervalEstimate(value=0.7), **figures}
    measured = CardSet(name="mine.jsonl", digest="ab" * 8, **known)
    JudgeCard(provider="scripted", model="scripted", date="2026-11-23", sets=[measured]).write(path)
    return str(path)


@pytest.fixture
def cases(tmp_path: Path) -> str:
    (tmp_path / "cases.jsonl").write_text(json.dumps(ROW_CARD))
    return str(tmp_path / "cases.jsonl")


def test_a_judge_without_a_card_that_beats_the_floor_is_refused_on_request(
    cases: str, tmp_path: Path
) -> None:
    judged = ("evaluate", cases, "--set", "judge.require_card=true", "--judge", "scripted")
    good, bad = a_card(tmp_path / "good.json", auc=0.8), a_card(tmp_path / "bad.json", auc=0.6)
    assert run(*judged, "--set", f"judge.card={good}").exit_code == 0
    for options, said in (
        ((), "has no card: nobody measured it"),
        (("--set", f"judge.card={bad}"), "no better than the share"),
    ):
        refused = run(*judged, *options)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert said in " ".join(refused.stderr.split())
        assert "--set judge.card=FILE" in refused.stderr
    assert run("evaluate", cases, "--set", "judge.require_card=true", "--judge", "lexical").exit_code == 0


REPLY = json.dumps({"chunks": [{"id": 1, "reason": "it says so", "relevance": 2}]})


@pytest.fixture
def rain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"question": "Rain?", "contexts": ["It rains."], "answer": "It rains."}))
    return str(path)


async def evaluate(rain: str, *arguments: str, endpoint: PeerEndpoint, model: str = "gpt-4o-mini") -> Result:
    async with serving(endpoint):
        named = ("--metrics", "context_precision", "--judge", f"openai:{model}", "--base-url", endpoint.url)
        return await asyncio.to_thread(run, "evaluate", rain, *named, "--json", *arguments)


@pytest.mark.slow
async def test_a_line_says_what_its_tokens_cost(rain: str, tmp_path: Path) -> None:
    result = await evaluate(rain, endpoint=PeerEndpoint(replies=[REPLY]))
    [line] = json_lines(result.stdout)
    assert (line["score"], line["calls"]) == (1.0, 1)
    assert line["cost_usd"] == pytest.approx((10 * 0.15 + 5 * 0.60) / 1e6)
    assert "1 call to gpt-4o-mini: 10 + 5 tokens, $0.0000 at the prices of" in result.stderr
    assert not (tmp_path / "cache").exists()  # no reply is kept unless asked for


@pytest.mark.slow
async def test_a_price_that_was_looked_up_long_ago_is_warned_of_once(rain: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("as_of = 2001-01-01\n[openai]\nqwen = {input = 1, output = 1}")
    settings = ("--set", f"judge.prices={prices}", "--set", "judge.second=openai:qwen")
    result = await evaluate(rain, *settings, endpoint=PeerEndpoint(replies=[REPLY]), model="qwen")
    assert result.stderr.count("warning: the price of qwen was looked up on") == 1


REPLY_ENDPOINTS = chat(REPLY)


@pytest.fixture
async def strict() -> AsyncIterator[Endpoint]:
    async with serving_endpoint(Endpoint(answer=REPLY_ENDPOINTS)) as served:
        yield served


async def scored(rain: str, *options: str) -> float:
    named = ("--metrics", "context_precision", "--judge", "openai:m", "--json")
    result = await asyncio.to_thread(run, "evaluate", rain, *named, *options)
    [line] = json_lines(result.stdout)
    return float(line["score"])


async def test_a_command_takes_headers_and_further_parameters(
    rain: str, strict: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "of-the-gateway")
    settings = (
        "judge.headers.x-gateway-key=${env:GATEWAY_KEY}",
        "judge.headers.x-team=a=b",
        'judge.extra_body={"reasoning_effort": "low"}',
    )
    options = [word for setting in settings for word in ("--set", setting)]
    assert await scored(rain, "--base-url", strict.url, *options) == 1.0
    assert strict.last.headers["x-gateway-key"] == "of-the-gateway"
    assert strict.last.headers["x-team"] == "a=b"
    assert strict.last.body["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("judge.headers.x-key=${env:NOT_SET}", "needs the environment variable NOT_SET"),
        ('judge.extra_body={"model": "other"}', "cannot set 'model'"),
    ],
)
def test_what_cannot_be_sent_is_said_at_once(setting: str, said: str, rain: str) -> None:
    result = run("evaluate", rain, "--judge", "openai:m", "--base-url", "http://h/v1", "--set", setting)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


async def test_doctor_shows_no_secret_of_the_endpoint(strict: Endpoint, tmp_path: Path) -> None:
    """An endpoint that repeats what it was sent must not get a secret onto the screen."""
    login = base64.b64encode(b"me:pass/word").decode()
    words = ["pass%2Fword", "pass/word", login, "header-secret"]
    strict.status = 403
    strict.answer = {"error": {"code": "header-secret", "message": " ".join(words)}}
    url = strict.url.replace("//", "//me:pass%2Fword@")
    config = tmp_path / "collector.yaml"
    config.write_text(
        f"judge: {{use: 'openai:m', base_url: '{url}', headers: {{x-key: header-secret}}}}\n"
        f"export: [{{endpoint: 'otlp-file:{tmp_path}/out.jsonl'}}]\nstore: {{path: '{tmp_path}/r.db'}}\n"
    )
    by_option = ("--judge", "openai:m", "--base-url", url, "--set", "judge.headers.x-key=header-secret")
    for arguments in (("--config", str(config)), by_option):
        result = await asyncio.to_thread(run, "doctor", *arguments, "--json")
        assert "judge_refused" in result.stdout
        assert not [word for word in words if word in result.stdout + result.stderr]
        assert strict.last.headers["authorization"] == f"Basic {login}"
        assert strict.last.headers["x-key"] == "header-secret"


async def test_headers_of_one_endpoint_do_not_go_to_another(strict: Endpoint) -> None:
    async with serving_endpoint(Endpoint()) as other:
        config = parse_config(
            "export: [{endpoint: 'http://localhost:4317'}]\n"
            f"judge: {{use: 'openai:m', base_url: '{strict.url}', headers: {{x-key: secret}},"
            f" extra_body: {{a: 1}},"
            f" second: {{use: 'openai:n', base_url: '{other.url}'}}}}",
            where="my.yaml",
            environ={},
        )
        async with aclosing(open_evaluator(config)) as judging:
            assert judging.evaluator.second_judge is not None
            await judging.evaluator.second_judge.ask(request())
    assert "secret" not in other.last.head
    assert "a" not in other.last.body


SUFFIXES = (".html", ".jsonl", ".csv", ".parquet")


class Files:
    """What the tests read and write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        traces = [stored_trace(0, RIGHT), stored_trace(1, WRONG), stored_trace(2, None), plain_trace(3)]
        self.source = f"otlp-file:{write_traces(folder / 'traces.jsonl', traces)}"
        self.verdicts = folder / "verdicts"
        self.script({})

    def script(self, script: dict[str, object]) -> None:
        """Say what the judge says."""
        (self.folder / "script.json").write_text(json.dumps(script))

    @property
    def judge(self) -> str:
        """The judge that says it."""
        return f"scripted:{self.folder / 'script.json'}"

    def out(self, suffix: str) -> Path:
        """Where a report is written."""
        return self.folder / f"report{suffix}"

    def backfill(self, *args: str, suffixes: tuple[str, ...] = SUFFIXES) -> tuple[str, ...]:
        """The command."""
        outs = [arg for suffix in suffixes for arg in ("--out", str(self.out(suffix)))]
        to = f"otlp-file:{self.verdicts}"
        return ("backfill", "--from", self.source, "--to", to, "--judge", self.judge, *outs, *args)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_all_reports_of_a_run_tell_the_same(files: Files) -> None:
    args = files.backfill("--metrics", "faithfulness,hallucination", "--json")
    (told,) = json_lines(run(*args).stdout)
    rows, page = json_rows(files.out(".jsonl")), Page(files.out(".html"))
    assert parquet_rows(files.out(".parquet")) == rows
    assert [row["label"] for row in rows] == ["pass", "fail", "skipped"]
    cells = [(each["record_id"], each["metric"], each["score"]) for each in csv_rows(files.out(".csv"))]
    assert cells == [
        (row["record_id"], name, "" if metric["score"] is None else str(metric["score"]))
        for row in rows
        for name, metric in row["metrics"].items()
    ]
    for name in ("faithfulness", "hallucination"):
        scores = [row["metrics"][name]["score"] for row in rows]
        known = [score for score in scores if score is not None]
        assert f"Mean {sum(known) / len(known):.2f} , 95 % interval" in page.text
        assert f"of {len(known)} answers with a score" in page.text
    assert f"{told['judged']} judged" in page.text
    calls = sum(row["judged"]["evaluation"]["usage"]["calls"] for row in rows)
    assert f"calls to the judge {calls}" in page.text


def test_the_page_says_what_was_asked_for_and_what_was_left_out(files: Files) -> None:
    run(*files.backfill("--rate", "0.000001", suffixes=(".jsonl", ".html")))
    text = Page(files.out(".html")).text
    assert "selection --rate 1e-06" in text
    assert "sampled out 3 answers" in text
    assert "no RAG call 1 trace " in text


def test_a_second_run_that_judges_nothing_leaves_the_reports_as_they_are(files: Files) -> None:
    run(*files.backfill())
    before = {suffix: files.out(suffix).read_bytes() for suffix in SUFFIXES}
    again = run(*files.backfill())
    assert {suffix: files.out(suffix).read_bytes() for suffix in SUFFIXES} == before
    assert again.stderr.count("nothing was judged") == 4


@pytest.fixture
def asked(files: Files, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options of a judge that costs money."""
    name = request.node.name.replace("_", "")
    paid(name)
    return (
        *("--judge", f"{PAID}{name}", "--set", f"judge.prices={prices(files.folder, name)}"),
        *("--concurrency", "1", "--yes"),
    )


def test_a_run_without_budget_reports_what_it_judged_and_the_rest_is_added(
    files: Files, asked: tuple[str, ...]
) -> None:
    assert run(*files.backfill(*asked, "--max-calls", "2")).exit_code == OVER_BUDGET
    page, rows = Page(files.out(".html")), json_rows(files.out(".jsonl"))
    assert "This run ended before its end: the budget is spent" in page.text
    assert "not begun 2 answers" in page.text
    assert [(row["trace_id"], row["label"]) for row in rows] == [(trace_id(0), "pass")]
    assert f"money ${rows[0]['cost_usd']:.2f}" in page.text
    run(*files.backfill(*asked, "--resume", suffixes=(".jsonl",)))
    assert [row["trace_id"] for row in json_rows(files.out(".jsonl"))] == [trace_id(n) for n in range(3)]


def test_a_report_that_cannot_be_written_fails_before_the_judge_is_asked(files: Files) -> None:
    files.script({"error": "judge_refused"})
    result = run(*files.backfill("--out", str(files.folder / "nowhere" / "r.html")))
    assert result.exit_code == 2
    assert "nowhere" in result.stderr
    assert "No such file or directory" in result.stderr
    assert not files.verdicts.exists()
    assert not list(files.folder.glob("report*"))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--out", "report.txt"), "must end with .html, .jsonl, .csv or .parquet"),
        (("--set", "ui.links.x=javascript:alert({trace_id})"), "write a URL with {trace_id}"),
        (("--out", "report.html", "--dry-run"), "--dry-run judges none without --pilot"),
    ],
)
def test_wrong_options_are_told(files: Files, args: tuple[str, ...], told: str) -> None:
    result = run(*files.backfill(*args, suffixes=()))
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


@pytest.mark.slow
def test_what_was_judged_before_ctrl_c_is_reported(files: Files) -> None:
    write_traces(files.folder / "traces.jsonl", [stored_trace(number) for number in range(8)])
    code = """
import os, signal
from ragtrace.judge import ScriptedJudge
def open_it(settings):
    calls, scripted = [], ScriptedJudge()
    def respond(request):
        calls.append(request)
        if len(calls) == 9:
            os.kill(os.getpid(), signal.SIGINT)
        return scripted.reply_to(request)
    return ScriptedJudge(respond)
"""
    (files.folder / "judge.py").write_text(code)
    judge = ("--judge", f"{files.folder / 'judge.py'}:open_it", "--concurrency", "1", "--json")
    process = start(*files.backfill(*judge))
    _, said = process.communicate(timeout=PATIENCE_S)
    stopped = b"stopped; the same command with --resume" in said
    assert (process.returncode, stopped) == (INTERRUPTED, True)
    rows = json_rows(files.out(".jsonl"))
    assert 4 <= len(rows) < 8
    assert parquet_rows(files.out(".parquet")) == rows
    assert len(csv_rows(files.out(".csv"))) == len(rows)
    page = Page(files.out(".html")).text
    assert "This run ended before its end: it was stopped." in page
    assert f"{len(rows)} judged" in page
