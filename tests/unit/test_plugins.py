from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.judge import open_judge
from ragtrace.metrics import Faithfulness, metric_named
from ragtrace.plugins import _installed

PLUGIN = """
from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import Faithfulness


class Strict(Faithfulness):
    name = "strictness"


def open_mine(settings):
    assert settings.argument == "tiny"
    return ScriptedJudge()
"""
ENTRY_POINTS = """
[ragtrace.metrics]
strictness = my_ragtrace_plugin:Strict
faithfulness = my_ragtrace_plugin:Strict
missing = my_ragtrace_plugin:Nothing

[ragtrace.judges]
mine = my_ragtrace_plugin:open_mine
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with plug-ins."""
    (tmp_path / "my_ragtrace_plugin.py").write_text(PLUGIN)
    info = tmp_path / "my_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    _installed.cache_clear()
    yield
    _installed.cache_clear()


def test_an_installed_metric_and_judge_are_found_by_name() -> None:
    assert metric_named("strictness", threshold=0.9).threshold == 0.9
    assert open_judge("mine:tiny").identity.provider == "scripted"


def test_a_plugin_cannot_take_the_name_of_a_built_in_metric() -> None:
    assert type(metric_named("faithfulness")) is Faithfulness


def test_a_plugin_that_cannot_be_loaded_is_named_with_its_package() -> None:
    with pytest.raises(ConfigError, match=r"'missing'.*'my-plugin'"):
        metric_named("missing")
