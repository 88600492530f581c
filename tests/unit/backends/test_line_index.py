"""Lines of files are found by an id, and each line is looked at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragtrace.backends.otlp_reader import LineIndex

OLD_NS = 10**18


class Ids:
    """Finds ids in lines, and notes which lines it was given."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def __call__(self, line: bytes) -> list[str]:
        self.seen.append(line)
        return re.findall(r"id-\d+", line.decode())


@pytest.fixture
def ids() -> Ids:
    return Ids()


@pytest.fixture
def index(ids: Ids) -> Iterator[LineIndex]:
    made = LineIndex(ids)
    yield made
    made.close()


def found(index: LineIndex, path: Path, wanted: str) -> list[bytes]:
    return [line.text for line in index.lines(path, wanted)]


def test_line_is_found_by_each_of_its_ids(index: LineIndex, tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"id-1 id-2\nnothing\n\nid-2 again id-2\nid-3")
    other.write_bytes(b"id-1 elsewhere\n")
    assert found(index, path, "id-1") == [b"id-1 id-2\n"]
    assert found(index, path, "id-2") == [b"id-1 id-2\n", b"id-2 again id-2\n"]
    assert found(index, path, "id-3") == [b"id-3"]
    assert found(index, path, "id-4") == []
    assert found(index, other, "id-1") == [b"id-1 elsewhere\n"]
    assert [line.start for line in index.lines(path, "id-2")] == [0, 19]


def test_only_what_was_appended_is_looked_at_again(index: LineIndex, ids: Ids, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"id-1\nid-2\nid-")
    assert found(index, path, "id-1") == found(index, path, "id-1") == [b"id-1\n"]
    assert ids.seen == [b"id-1\n", b"id-2\n", b"id-"]
    ids.seen.clear()
    with path.open("ab") as file:
        file.write(b"3\nid-1 later\n")
    assert found(index, path, "id-3") == [b"id-3\n"]
    assert found(index, path, "id-1") == [b"id-1\n", b"id-1 later\n"]
    assert ids.seen == [b"id-3\n", b"id-1 later\n"]


@pytest.mark.parametrize("content", [b"id-2\n", b"id-2\nid-3\n", b"id-2\nid-3\nid-4 and more\n"])
def test_file_that_was_written_again_is_read_again(index: LineIndex, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"id-1\nid-9\n")
    os.utime(path, ns=(OLD_NS, OLD_NS))
    assert found(index, path, "id-9") == [b"id-9\n"]
    path.write_bytes(content)
    assert found(index, path, "id-2") == [b"id-2\n"]
    assert found(index, path, "id-9") == found(index, path, "id-1") == []


def test_file_that_is_gone_is_told(index: LineIndex, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        index.lines(tmp_path / "a", "id-1")
