"""Reports as JSON lines, CSV, Parquet and a page."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.answers.rows import read_line, report_lines
from ragtrace.budget import load_prices
from ragtrace.cli.judging import Reports
from ragtrace.cli.options import ReportOptions
from ragtrace.errors import ConfigError
from ragtrace.model import (
    VerdictLabel,
)
from ragtrace.reports import RunEnd, SkippedAnswers, open_report
from tests.unit.reports.judged_answers import (
    ABOUT,
    a_verdict,
    failure,
    judged,
    of_outcome,
    texts,
    write,
)
from tests.unit.reports.reading import Page, csv_rows, json_rows, parquet_rows

answers = st.lists(
    st.builds(
        lambda score, answer, chunk, question, claim, quote: judged(
            score=score,
            answer=answer,
            chunk=chunk,
            question=question,
            verdict=a_verdict(VerdictLabel.CONTRADICTED, claim, quote),
        ),
        st.none() | st.floats(0, 1),
        texts,
        texts,
        texts,
        texts,
        st.none() | texts,
    ),
    max_size=3,
)


@given(answers)
def test_any_text_survives_json_lines_and_parquet(found: list) -> None:  # type: ignore[type-arg]
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "r.jsonl", *found)
        assert [read_line(line).judged for line in report_lines(path)] == found
        assert parquet_rows(write(Path(folder) / "r.parquet", *found)) == json_rows(path)


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    formulas = ("=HYPERLINK(A1)", "+1", "-1", "@SUM(A1)", "\t=1", "\uff1d1", "'=1")
    for text in (*formulas, "'tis", "1 = 1"):
        (tmp_path / "r.csv").unlink(missing_ok=True)
        written = write(tmp_path / "r.csv", judged(question=text)).read_bytes()
        cell = f"'{text}" if text in formulas else text
        assert f",{cell},".encode() in written, text


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_row_that_a_crash_cut_is_taken_back(tmp_path: Path, suffix: str, cut: int) -> None:
    path = tmp_path / f"r{suffix}"
    write(path, judged(0, question='two\nlines and a "', answer="two\r\nlines"), judged(1, answer="a\nb"))
    path.write_bytes(path.read_bytes()[:-cut])
    write(path, judged(2))
    rows = json_rows(path) if suffix == ".jsonl" else csv_rows(path)
    assert [row["record_id"] for row in rows] == ["record 0", "record 2"]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r{suffix}"
    path.write_text('{"resourceSpans": []}\n')
    with pytest.raises(ConfigError, match="exists and is no such report"):
        open_report(path, ABOUT)
    assert path.read_text() == '{"resourceSpans": []}\n'


def test_only_the_owner_may_read_a_report(tmp_path: Path) -> None:
    for suffix in (".jsonl", ".csv", ".parquet", ".html"):
        (tmp_path / suffix).mkdir()
        path = write(tmp_path / suffix / f"r{suffix}", judged())
        assert path.stat().st_mode & 0o777 == 0o600, suffix
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".parquet", ".html"])
def test_an_earlier_report_stands_until_the_new_one_is_whole(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"r{suffix}", judged(0))
    before = path.read_bytes()
    report = open_report(path, ABOUT)
    report.add(judged(1, score=0.0))
    assert path.read_bytes() == before
    report.close(RunEnd())
    assert path.read_bytes() != before


@pytest.fixture
def no_room() -> Iterator[Callable[[int], None]]:
    """Let no file of this process grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_full_disk_cuts_no_row_and_ends_the_report_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_room: Callable[[int], None], suffix: str
) -> None:
    path, other = tmp_path / f"r{suffix}", tmp_path / "r.html"
    with Reports(ReportOptions(paths=(path, other), transcripts=None), ABOUT, load_prices()) as reports:
        reports.add(judged(0))
        whole = path.read_bytes()
        no_room(len(whole) + 100)
        reports.add(judged(1))
        no_room(resource.RLIM_INFINITY)
        reports.add(judged(2))
    assert not reports.is_whole
    assert path.read_bytes() == whole
    assert "of 3 answers with a score" in Page(other).text
    assert "cannot be written, so it ends here: File too large" in capsys.readouterr().err


def test_a_library_that_is_missing_is_named_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs pyarrow.*pip install .*\[parquet\]"):
        open_report(tmp_path / "r.parquet", ABOUT)
    assert not list(tmp_path.iterdir())


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
