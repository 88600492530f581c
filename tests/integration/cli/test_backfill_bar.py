"""The line at the foot of the terminal while ``ragtrace backfill`` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.cli.backfill_run import Gauge, bar_line
from ragtrace.traces.otlp import encode_json
from tests.acceptance.judge_server import running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.integration.cli.terminal import OnTerminal
from tests.rag_spans import rag_trace, trace_id_of


@pytest.mark.parametrize(
    ("gauge", "line"),
    [
        (
            Gauge(done=1234, total=3000, share=0.9, seconds=100.0, spent="$0.12 of $5.00"),
            " 41% ━━━━━━━━──────────── 1,234 of 3,000 · 12.3/s · $0.12 of $5.00 · 2 min left",
        ),
        (
            Gauge(done=50, total=None, share=None, seconds=20.0, spent="5,000 tokens"),
            "50 judged · 2.5/s · 5,000 tokens",
        ),
        (
            Gauge(done=3, total=None, share=0.001, seconds=20.0, spent="$0.01", waiting_for=12),
            "  0% ──────────────────── 3 judged · waiting for 12 live · $0.01 · 6 h left",
        ),
    ],
)
def test_the_line_tells_what_is_known(gauge: Gauge, line: str) -> None:
    assert bar_line(gauge, width=79) == line


@given(
    gauge=st.builds(
        Gauge,
        done=st.integers(0, 10**9),
        total=st.none() | st.integers(0, 10**9),
        share=st.none() | st.floats(-1, 2),
        seconds=st.floats(0, 10**9),
        spent=st.text(max_size=30),
        waiting_for=st.integers(0, 10**6),
    ),
    width=st.integers(1, 200),
)
def test_the_line_never_wraps(gauge: Gauge, width: int) -> None:
    assert len(bar_line(gauge, width=width)) <= width


@pytest.mark.slow
def test_on_a_terminal_the_line_stands_below_outcomes_that_it_does_not_break(tmp_path: Path) -> None:
    is_piped = False
    answers = 5
    with running_judge(REPLIES) as judge:
        to = (
            "--from",
            f"otlp-file:{stored(tmp_path, answers)}",
            "--to",
            f"otlp-file:{tmp_path / 'out.jsonl'}",
        )
        asked = ("--judge", "openai:gpt-4o-mini", "--base-url", judge.base_url, "--max-cost", "5", "--yes")
        shown = OnTerminal(("backfill", *to, *asked), is_piped=is_piped)
        piped = shown.finish()
    assert shown.process.returncode == 0, shown.drawn
    assert re.search(r"judged · |\d of \d", shown.drawn)
    assert "of $5.00" in shown.drawn
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piped if is_piped else shown.drawn)
    rows = re.findall(r"([0-9a-f]{32})   0\.\d\d  (?:pass|fail)", plain)
    assert rows == [trace_id_of(each) for each in range(answers)]
    assert "\x1b" not in piped


def stored(folder: Path, answers: int) -> Path:
    file = folder / "traces.jsonl"
    file.write_text("".join(f"{encode_json(rag_trace(each, answer=ANSWER))}\n" for each in range(answers)))
    return file
