"""Reports as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragtrace.model import VerdictLabel
from ragtrace.reports import RunEnd, SkippedAnswers
from tests.unit.reports.judged_answers import (
    ABOUT,
    a_verdict,
    failure,
    judged,
    of_outcome,
    write,
)
from tests.unit.reports.reading import Page

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_text_under_judgment_is_never_markup(tmp_path: Path) -> None:
    text = f"{SCRIPT} \"quoted\" & 'so on'"
    hostile = judged(
        score=0.0,
        answer=text,
        chunk=text,
        question=text,
        verdict=a_verdict(VerdictLabel.CONTRADICTED, text, text),
    )
    about = replace(ABOUT, source=SCRIPT, judge=SCRIPT, metrics=(SCRIPT,), selection={"--tag": SCRIPT})
    page = Page(write(tmp_path / "r.html", hostile, about=about))
    assert not {"script", "img"} & {*page.tags}
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert page.text.count(SCRIPT) >= 8


def test_the_page_stands_alone(tmp_path: Path) -> None:
    page = Page(write(tmp_path / "r.html", judged(score=0.0)))
    assert not {"script", "link", "img", "iframe"} & {*page.tags}
    assert {value for name, value in page.attributes if name == "href"} == {
        *("#main", "#totals", "#metric1", "#worst", "#left-out", "#cost"),
        *("#a1-claim1", "#a1-chunk1"),
    }
    policy = next(value for _, value in page.attributes if value and value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_the_mean_is_weighted_and_says_of_how_many_answers(tmp_path: Path) -> None:
    found = [judged(number, 0.0, probability=1.0) for number in range(10)]
    found += [judged(number, 1.0, probability=0.1) for number in range(10, 20)]
    page = Page(write(tmp_path / "r.html", *found))
    assert "Mean 0.91 , 95 % interval" in page.text
    assert "of 20 answers with a score" in page.text
    assert "Pass 91 %" in page.text
    assert "Each answer is weighted by one over its sampling probability" in page.text


def test_claims_lead_to_the_quote_in_the_chunk(tmp_path: Path) -> None:
    verdict = a_verdict(VerdictLabel.CONTRADICTED, "Within 30 days.", "within 14 days")
    page = Page(write(tmp_path / "r.html", judged(score=0.0, answer="Within 30 days.", verdict=verdict)))
    assert page.texts.count("Within 30 days.") == 2  # in the answer, and as a claim
    assert page.texts.count("within 14 days") == 2  # in the chunk, and below the claim
    assert ("id", "a1-chunk1") in page.attributes
    assert page.attributes.count(("class", "contradicted")) == 3  # both passages, and what it looks like


def test_what_was_not_judged_is_told_with_its_reason(tmp_path: Path) -> None:
    left_out = SkippedAnswers(what="sampled out", number=7, unit="answer", why="by the rate")
    ending = RunEnd(cut_short="it was stopped", left_out=(left_out,))
    found = (of_outcome(failure()), judged(1, None), judged(2, None))
    text = Page(write(tmp_path / "r.html", *found, ending=ending)).text
    assert "This run ended before its end: it was stopped." in text
    assert "ineligible: no claims 2 answers the answer states nothing that can be checked" in text
    assert "failed: judge timeout 1 answer" in text
    assert "sampled out 7 answers by the rate" in text
    assert "No answer has a score." in text


def test_an_answer_of_a_megabyte_is_shortened_around_what_is_marked(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    verdict = a_verdict(VerdictLabel.UNSUPPORTED, "y" * 10, None)
    path = write(tmp_path / "r.html", judged(score=0.0, answer="y" * 10 + long, chunk=long, verdict=verdict))
    assert path.stat().st_size < 50_000
    assert "998,000 characters are not shown" in Page(path).text
