"""What is known of a judge is said with every verdict, and an unknown judge can be refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragtrace.metrics.judge_card import CardFigure, CardSet, JudgeCard
from tests.integration.cli.program import json_lines, run

ROW = {"question": "How long?", "contexts": ["Refunds take 14 days."], "answer": "Refunds take 14 days."}


def a_card(path: Path, *, auc: float, model: str = "scripted") -> str:
    measured = CardSet(
        name="mine.jsonl", digest="ab" * 8, auc=CardFigure(value=auc), floor_auc=CardFigure(value=0.7)
    )
    JudgeCard(provider="scripted", model=model, date="2026-11-23", sets=[measured]).write(path)
    return str(path)


@pytest.fixture
def cases(tmp_path: Path) -> str:
    (tmp_path / "cases.jsonl").write_text(json.dumps(ROW))
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


@pytest.mark.parametrize(("precision", "label"), [(0.4, "unsupported"), (0.8, "contradicted")])
def test_a_contradicted_that_is_mostly_wrong_counts_as_unsupported(
    tmp_path: Path, precision: float, label: str
) -> None:
    case = {**ROW, "answer": "Refunds take 30 days."}
    cases, script, card = (tmp_path / name for name in ("cases.jsonl", "script.json", "card.json"))
    cases.write_text(json.dumps(case))
    verdict = {"label": "contradicted", "chunks": [1], "quote": ROW["contexts"][0], "reason": "14, not 30"}
    script.write_text(json.dumps({"claims": {"Refunds take 30 days.": verdict}}))
    measured = CardSet(
        name="mine.jsonl",
        digest="ab" * 8,
        auc=CardFigure(value=0.9),
        floor_auc=CardFigure(value=0.7),
        contradicted_precision=CardFigure(value=precision),
    )
    JudgeCard(provider="scripted", model="scripted", date="2026-11-23", sets=[measured]).write(card)
    judged = ("evaluate", str(cases), "--judge", f"scripted:{script}", "--json")
    (plain,) = json_lines(run(*judged).stdout)
    (line,) = json_lines(run(*judged, "--set", f"judge.card={card!s}").stdout)
    [found] = line["verdicts"]
    assert found["label"] == label
    assert found["quote_verified"], "the evidence stays"
    assert "14, not 30" in found["reason"]
    assert (line["evaluator_version"] == plain["evaluator_version"]) == (label == "contradicted")
    (hallucination,) = json_lines(
        run(*judged, "--metrics", "hallucination", "--set", f"judge.card={card!s}").stdout
    )
    assert (hallucination["score"] is None) == (label == "unsupported"), "an absence of them means nothing"
