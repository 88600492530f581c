"""The state folder: where it is, and whose."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.files import make_state_folder, state_folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RAGTRACE_STATE_DIR": "/a", "STATE_DIRECTORY": "/b", "XDG_STATE_HOME": "/c"}, "/a"),
        ({"RAGTRACE_STATE_DIR": "", "STATE_DIRECTORY": "/b:/other", "XDG_STATE_HOME": "/c"}, "/b"),
        ({"XDG_STATE_HOME": "/c"}, "/c/ragtrace"),
        ({"XDG_STATE_HOME": "relative"}, "~/.local/state/ragtrace"),
        ({}, "~/.local/state/ragtrace"),
    ],
)
def test_the_first_that_says_where_is_heard(environ: dict[str, str], expected: str) -> None:
    assert state_folder(environ) == Path(expected).expanduser()


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "deep" / "state")}
    make_state_folder(environ)
    make_state_folder(environ)
    assert stat.S_IMODE(state_folder(environ).stat().st_mode) == 0o700


def test_one_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"state folder .*file/state.* RAGTRACE_STATE_DIR"):
        make_state_folder({"RAGTRACE_STATE_DIR": str(tmp_path / "file" / "state")})
