"""Criteria in one line: from the option or the configuration to what people see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragtrace.traces.otlp import decode_json, encode_json
from tests.integration.cli.program import json_lines, run
from tests.integration.cli.test_evaluate_peers import write
from tests.rag_spans import rag_trace

NEXT = "The answer names the next step"
THANKS = "The answer thanks the customer"
ROW = {
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


def scripted(folder: Path) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return f"scripted:{path}"


def test_criteria_are_judged_in_one_call_beside_other_metrics(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", ROW)
    asked = ("--criterion", f"next_step={NEXT}", "--criterion", THANKS)
    result = run("evaluate", cases, "--judge", scripted(tmp_path), *asked)
    assert result.exit_code == 0
    assert "next_step                        1.00  pass     criterion met" in result.stdout
    assert "the_answer_thanks_the_customer   0.00  fail     criterion not met" in result.stdout
    assert "not met       The answer thanks the customer" in result.stdout
    assert "no thanks" in result.stdout
    assert "answers  1 (met 0, not met 1, unjudged 0)" in result.stdout
    assert "3 calls to the judge in all" in result.stdout


def test_a_quote_of_the_answer_is_checked(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", ROW)
    asked = ("--criterion", f"next_step={NEXT}", "--criterion", f"thanks={THANKS}")
    printed = run("evaluate", cases, "--judge", scripted(tmp_path), *asked, "--json").stdout
    verdicts = {line["metric"]: (line, line["verdicts"][0]) for line in json_lines(printed)}
    _, step = verdicts["next_step"]
    assert (step["claim"], step["kind"], step["label"]) == (NEXT, "criterion", "met")
    assert (step["quote"], step["quote_verified"]) == ("Then call the shop", True)
    thanks, verdict = verdicts["thanks"]
    assert (verdict["quote"], verdict["quote_verified"]) == (None, False)
    assert thanks["details"]["quotes_unverified"] == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "is empty: say what the answer must do"),
        ("next_step= ", "'next_step' is empty"),
        ("x" * 501, "has 501 characters, of at most 500: ask one thing"),
        (
            "groundedness=The answer is true",
            "'groundedness' is a metric of its own: give the criterion another",
        ),
        ("答案说明下一步", "no name can be made of the criterion's words: write NAME=TEXT"),
    ],
)
def test_a_criterion_that_cannot_be_asked_is_refused(tmp_path: Path, given: str, said: str) -> None:
    cases = write(tmp_path / "cases.jsonl", ROW)
    result = run("evaluate", cases, "--judge", "scripted", "--criterion", given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())


def test_two_criteria_of_one_name_are_refused(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", ROW)
    asked = ("--criterion", f"step={NEXT}", "--criterion", f"step={THANKS}")
    result = run("evaluate", cases, "--judge", "scripted", *asked)
    assert result.exit_code == 2
    assert "'step' is named twice" in result.stderr


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
    source.write_text(
        encode_json(
            rag_trace(
                0, question="How long do refunds take?", answer="Refunds take 14 days. Then call the shop."
            )
        )
    )
    asked = ("--criterion", f"next_step={NEXT}", "--set", f"attach.content={str(content).lower()}")
    places = ("--from", f"otlp-file:{source}", "--to", f"otlp-file:{out}")
    assert run("backfill", *places, "--judge", scripted(tmp_path), *asked).exit_code == 0
    (carrier,) = [span for line in out.read_text().splitlines() for span in decode_json(line)]
    (verdict,) = [dict(each.attributes) for each in carrier.events if each.name == "ragtrace.claim.met"]
    assert verdict["ragtrace.claim.assertion"] == NEXT
    texts = ("Then call the shop", "it says whom to call") if content else (None, None)
    assert (verdict.get("ragtrace.claim.quote"), verdict.get("ragtrace.claim.reason")) == texts


def test_what_is_about_claims_is_refused_for_criteria(tmp_path: Path) -> None:
    result = run("calibrate", labeled(tmp_path), "--judge", "scripted", "--card", str(tmp_path / "card.json"))
    assert result.exit_code == 2
    assert "--card is about claims, and these rows label criteria: leave it out" in result.stderr
    bare = write(tmp_path / "bare.jsonl", {"criteria": [{"text": NEXT, "label": True}]})
    result = run("calibrate", bare, "--judge", "scripted")
    assert result.exit_code == 2
    assert "`criteria` need an `answer`, and no `claims` beside them" in result.stderr
