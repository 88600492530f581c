"""Links that somebody else planted where a file is to be written (symlink attack, CWE-59); modes of files."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragtrace.backends.otlp_sinks import OtlpFileSink
from ragtrace.errors import SendRefused
from ragtrace.traces.otlp import encode, encode_json
from tests.acceptance.judge_server import running_judge
from tests.acceptance.replies import REPLIES
from tests.integration.cli.program import run
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

SECRET = "the victim's own file"
QUESTION = "How long do refunds take?"


def evaluate(folder: Path, *options: str, judge: str = "scripted") -> int:
    records = folder / "records.jsonl"
    records.write_text(
        json.dumps({"question": QUESTION, "contexts": ["14 days."], "answer": "14 days."}) + "\n"
    )
    return run("evaluate", str(records), "--judge", judge, *options).exit_code


def report(folder: Path, out: Path) -> int:
    return evaluate(folder, "--out", str(out))


def backfill(folder: Path, verdicts: Path, *options: str) -> int:
    source = folder / "traces.jsonl"
    source.write_text(f"{encode_json(rag_trace(0))}\n")
    progress = () if "--progress" in options else ("--progress", str(folder / "unnamed.progress"))
    return run(
        *("backfill", "--from", f"otlp-file:{source}", "--to", f"otlp-file:{verdicts}"),
        *("--judge", "scripted", "--yes", "--json", *progress, *options),
    ).exit_code


def named_by(option: str) -> Callable[[Path, Path], int]:
    def written(folder: Path, out: Path) -> int:
        return backfill(folder, folder / "verdicts", option, str(out))

    return written


def cache(folder: Path, out: Path) -> int:
    with running_judge(REPLIES) as server:
        options = ("--base-url", server.base_url, "--set", f"judge.cache={out}")
        return evaluate(folder, *options, judge="openai:m")


Write = Callable[[Path, Path], int]
REPLACED: dict[str, Write] = {"report.html": report, "report.parquet": report}
"""Written beside their place: what stands there is replaced."""
OPENED: dict[str, Write] = {
    "report.jsonl": report,
    "report.csv": report,
    "verdicts.jsonl": backfill,
    "judged.transcripts": named_by("--transcripts"),
    "run.progress": named_by("--progress"),
    "replies.cache": cache,
}
"""Opened where they stand, and gone on with."""
ALL = {**REPLACED, **OPENED}


def each(writes: dict[str, Write]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("name", "write"), writes.items(), ids=writes)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Make a file elsewhere, and see in the end that nobody touched it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = elsewhere / "victim"
    file.write_text(SECRET)
    file.chmod(0o644)
    yield file
    assert file.read_text() == SECRET
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert os.listdir(elsewhere) == ["victim"]


@each(ALL)
def test_what_is_written_is_for_its_owner_alone_and_follows_no_link_beside_it(
    tmp_path: Path, victim: Path, name: str, write: Write
) -> None:
    (tmp_path / f"{name}.part").symlink_to(victim.parent / "new")
    for end in (".partial", ".tmp"):
        (tmp_path / f"{name}{end}").symlink_to(victim)
    before = os.umask(0)
    try:
        assert write(tmp_path, tmp_path / name) == 0
    finally:
        os.umask(before)
    assert (tmp_path / name).stat().st_size > 0
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@each(REPLACED)
def test_a_link_in_the_place_itself_is_replaced(
    tmp_path: Path, victim: Path, name: str, write: Write
) -> None:
    place = tmp_path / name
    place.symlink_to(victim)
    assert write(tmp_path, place) == 0
    assert not place.is_symlink()
    assert place.stat().st_size > 0


@each(OPENED)
def test_a_link_in_the_place_itself_is_not_followed(
    tmp_path: Path, victim: Path, name: str, write: Write
) -> None:
    place = tmp_path / name
    place.symlink_to(victim.parent / "new")
    assert write(tmp_path, place) != 0 or write is cache  # which judging goes on without
    assert place.is_symlink()


def test_a_refused_link_is_named_with_what_to_do(tmp_path: Path, victim: Path) -> None:
    place = tmp_path / "report.jsonl"
    place.symlink_to(victim)
    (tmp_path / "records.jsonl").write_text("{}\n")
    told = run(
        "evaluate", str(tmp_path / "records.jsonl"), "--judge", "scripted", "--out", str(place), columns=500
    )
    assert str(place) in told.output
    assert "is a link" in told.output
    assert "name the file" in told.output


async def test_a_sink_does_not_follow_a_link_that_was_planted_while_it_ran(
    tmp_path: Path, victim: Path
) -> None:
    place = tmp_path / "out.jsonl"
    sink = OtlpFileSink(place)
    await sink.send(encode(rag_trace(0)))
    place.unlink()
    place.symlink_to(victim)
    with pytest.raises(SendRefused, match="is a link"):
        await sink.send(encode(rag_trace(1)))
