"""``ragtrace backfill``: what it says beforehand that it will cost, and what it then costs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.corpora import CORPORA, Corpus
from tests.integration.cli.program import COMMAND, json_lines, run
from tests.patience import PATIENCE_S
from tests.typical_model import Habits, TypicalModel, running_typical_model
from tests.unit.backfill.stored_traces import rag_trace, write_traces

pytestmark = pytest.mark.slow

AMOUNTS = ("calls", "input_tokens", "output_tokens", "usd")
PER_MILLION = {
    "gpt-4o-mini": (0.15, 0.60),
    "gpt-4.1-nano": (0.10, 0.40),
    "gpt-4o": (2.50, 10.0),
    "gpt-4.1": (2.0, 8.0),
}


def told(*args: str) -> Mapping[str, Any]:
    result = run("backfill", *args, "--json")
    assert result.exit_code == 0, result.output
    (line,) = json_lines(result.stdout)
    return line


def actual(model: TypicalModel, name: str) -> dict[str, float]:
    """What the provider counted."""
    of_input, of_output = PER_MILLION[name]
    usd = (model.input_tokens * of_input + model.output_tokens * of_output) / 1e6
    amounts = (model.calls, model.input_tokens, model.output_tokens, usd)
    return dict(zip(AMOUNTS, amounts, strict=True))


def misses(estimate: Mapping[str, Any], spent: Mapping[str, float]) -> dict[str, Any]:
    return {
        name: (estimate[name], amount)
        for name, amount in spent.items()
        if not estimate[name]["low"] - 1e-9 <= amount <= estimate[name]["high"] + 1e-9
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "corpus",
    [
        pytest.param(corpus, id=name, marks=[pytest.mark.night] * (name != "long answers"))
        for name, corpus in CORPORA.items()
    ],
)
def test_the_run_costs_what_the_dry_run_said_from_sizes_and_from_a_pilot(
    corpus: Corpus, tmp_path: Path
) -> None:
    source = write_traces(tmp_path / "traces.jsonl", corpus.traces())
    with running_typical_model(corpus.habits) as model:
        judge = ("--judge", f"openai:{corpus.model}", "--base-url", model.url, "--metrics", corpus.metrics)
        args = ("--from", f"otlp-file:{source}", "--to", f"otlp-file:{tmp_path / 'verdicts.jsonl'}", *judge)
        sizes = told(*args, "--dry-run")["estimate"]
        assert model.calls == 0
        pilot = told(*args, "--dry-run", "--pilot", "15")
        report = told(*args, "--yes")
    spent = actual(model, corpus.model)
    assert (pilot["pilot"]["usage"]["calls"] + report["usage"]["calls"]) == spent["calls"]
    assert (misses(sizes, spent), misses(pilot["estimate"], spent)) == ({}, {})


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces.jsonl", [rag_trace(number) for number in range(12)])


@pytest.mark.parametrize(
    ("judge", "refused"),
    [
        pytest.param(("lexical",), False, id="code"),
        pytest.param(("openai:own",), False, id="no price, on this machine"),
        pytest.param(("openai:gpt-4o-mini",), True, id="a price, on this machine: a gateway"),
        pytest.param(("openai:gpt-4o-mini", "--yes"), False, id="agreed to"),
        pytest.param(("openai:own", "--set", "judge.second=openai:gpt-4o-mini"), True, id="the second costs"),
        pytest.param(("openai:own", "--set", "judge.second=lexical"), False, id="the second is code"),
    ],
)
def test_who_may_cost_money_is_not_asked_without_a_yes(
    traces: Path, tmp_path: Path, judge: tuple[str, ...], refused: bool
) -> None:
    with running_typical_model(Habits()) as model:
        url = ("--base-url", model.url) if judge[0] != "lexical" else ()
        args = ("--from", f"otlp-file:{traces}", "--to", f"otlp-file:{tmp_path / 'out'}", "--judge", *judge)
        result = run("backfill", *args, *url)
    assert result.exit_code == (2 if refused else 0)
    assert ("there is no terminal to ask on" in " ".join(result.stderr.split())) == refused
    assert not (refused and model.calls)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--dry-run", "--pilot", "9"), "give the --to of that run"),
        (("--dry-run", "--pilot", "2"), "2 is not in the range"),
        (
            ("--from", "otlp-file:-", "--to", "otlp-file:out", "--pilot", "9"),
            "standard input can be read once",
        ),
        (
            ("--from", "otlp-file:-", "--to", "otlp-file:out", "--judge", "openai:gpt-4o-mini"),
            "--yes spends it",
        ),
    ],
)
def test_a_pilot_wants_a_destination_and_a_source_that_is_still_there(
    traces: Path, args: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    result = run("backfill", "--from", f"otlp-file:{traces}", *args)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_people_are_told_what_a_pilot_found_and_the_run_says_it_before_it_goes_on(
    traces: Path, tmp_path: Path
) -> None:
    with running_typical_model(Habits()) as model:
        judge = ("--judge", "openai:gpt-4o-mini", "--base-url", model.url)
        args = ("--from", f"otlp-file:{traces}", "--to", f"otlp-file:{tmp_path / 'out'}", *judge)
        planned = run("backfill", *args, "--dry-run", "--pilot", "5")
        assert not (tmp_path / "out").exists()
        done = run("backfill", *args, "--pilot", "6", "--yes")
    assert "estimate for 12 answers, from 5 that were judged (95 %):" in planned.stdout
    assert ", prices of 20" in planned.stdout
    assert "the run sends its verdicts" in planned.stdout
    assert "estimate for 7 answers, from 6 that were judged (95 %):" in done.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 12
    assert max(map(len, planned.stdout.splitlines())) <= 80


def test_the_limit_of_a_run_holds_with_its_pilot(traces: Path, tmp_path: Path) -> None:
    limit = 8
    out = tmp_path / "out"
    args = ("--from", f"otlp-file:{traces}", "--to", f"otlp-file:{out}", "--judge", "lexical", "--pilot", "5")
    run("backfill", *args, "--limit", str(limit))
    assert len(out.read_text().splitlines()) == limit


def test_a_pilot_that_failed_is_told_and_the_exit_code_is_1(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"error": "judge_refused"}')
    judge = ("--judge", f"scripted:{tmp_path / 'broken.json'}")
    result = run(
        *("backfill", "--from", f"otlp-file:{traces}", "--to", f"otlp-file:{tmp_path / 'out'}", *judge),
        *("--dry-run", "--pilot", "5"),
    )
    assert result.exit_code == 1
    assert "the pilot failed on 5 (judge_refused 5)" in result.stdout


CTRL_C = "\x03"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "judged"), [("y\n", 12), ("n\n", 0), ("\n", 0), (CTRL_C, 0)])
def test_on_a_terminal_the_estimate_is_shown_and_agreed_to(
    traces: Path, tmp_path: Path, answer: str, judged: int
) -> None:
    leader, follower = pty.openpty()
    out = tmp_path / "out.jsonl"
    with running_typical_model(Habits(malformed=0.0)) as model:
        judge = ("--judge", "openai:gpt-4o-mini", "--base-url", model.url)
        process = subprocess.Popen(
            [*COMMAND, "backfill", "--from", f"otlp-file:{traces}", "--to", f"otlp-file:{out}", *judge],
            stdin=follower,
            stdout=subprocess.DEVNULL,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(follower)
        shown = until(leader, "continue? [y/N]")
        assert model.calls == 0
        os.write(leader, answer.encode())
        if answer == CTRL_C:
            shown += until(leader, "Aborted!", again=CTRL_C)  # and no second one while it goes
        shown += until(leader, None)
        assert process.wait(timeout=PATIENCE_S) == (0 if judged else 1)
    assert "estimate for 12 answers, from their sizes" in shown
    assert ("Aborted!" in shown) == (not judged)
    assert (len(out.read_text().splitlines()) if out.exists() else 0) == judged


def until(leader: int, text: str | None, *, again: str = "") -> str:
    """Read a terminal until it shows a text, or whoever wrote to it is gone.

    A signal that comes between the prompt and the system's call to read is noted and interrupts nothing: as a
    person would, press the key ``again`` while nothing happens.
    """
    shown = b""
    while text is None or text.encode() not in shown:
        while again and not select.select([leader], [], [], 1)[0]:
            os.write(leader, again.encode())
        try:
            piece = os.read(leader, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    return shown.decode()
