from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.judge import ScriptedJudge, open_embedder, open_judge, unwrapped
from ragtrace.metrics import metric_named
from ragtrace.model import Chunk, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.plugins import _installed

PLUGIN = """
from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import Faithfulness
from ragtrace.model import Direction, JudgeIdentity, MetricResult, Usage
from ragtrace.ports import Embeddings


class Strict(Faithfulness):
    name = "strictness"


class Nameless:
    pass


class Unnatural(Faithfulness):
    name = "unnatural"

    async def measure(self, record, steps):
        result = await super().measure(record, steps)
        object.__setattr__(result, "score", float("nan"))
        return result


class Forgetful(Faithfulness):
    name = "forgetful"

    async def measure(self, record, steps):
        await super().measure(record, steps)


class Mutable(Faithfulness):
    name = "mutable"

    async def measure(self, record, steps):
        result = await super().measure(record, steps)
        object.__setattr__(result, "verdicts", list(result.verdicts))
        return result


class Undeclared:
    name, profile, version, threshold = "undeclared", "mine", "1", 0.5
    direction = Direction.HIGHER_IS_BETTER

    async def measure(self, record, steps):
        verdicts = (await steps.verify()).verdicts
        return MetricResult(
            metric=self.name,
            profile=self.profile,
            score=float(len(verdicts)),
            threshold=self.threshold,
            direction=self.direction,
            evaluator_version=steps.version_of(self),
            prompt_sha256=steps.prompt_sha256_of(self),
        )


def open_mine(settings):
    assert settings.argument == "tiny"
    return ScriptedJudge()


class Embedder:
    def __init__(self, settings):
        self.identity = JudgeIdentity(provider="me", model="mine")

    async def embed(self, texts):
        return Embeddings(vectors=tuple((1.0, float(len(text))) for text in texts), usage=Usage())

    async def aclose(self):
        pass


def open_nothing(settings):
    return object()
"""
ENTRY_POINTS = """
[ragtrace.metrics]
strictness = my_ragtrace_plugin:Strict
missing = my_ragtrace_plugin:Nothing

[ragtrace.judges]
mine = my_ragtrace_plugin:open_mine
"""
RECORD = RagRecord(id="r", question="?", chunks=(Chunk(id="c", text="Cats purr."),), answer="Cats purr.")


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with plug-ins."""
    (tmp_path / "my_ragtrace_plugin.py").write_text(PLUGIN)
    info = tmp_path / "my_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    _installed.cache_clear()
    yield
    sys.modules.pop("my_ragtrace_plugin", None)
    _installed.cache_clear()


def test_an_installed_metric_and_judge_are_found_by_name() -> None:
    assert metric_named("strictness", threshold=0.9).threshold == 0.9
    assert open_judge("mine:tiny").identity.provider == "scripted"


def test_a_plugin_that_cannot_be_loaded_is_named_with_its_package() -> None:
    with pytest.raises(ConfigError, match=r"'missing'.*'my-plugin'"):
        metric_named("missing")


UNDECLARED = r"gives no metric: 'undeclared' has no `needs`: inherit the port, which has a default"


def test_a_metric_without_what_the_port_declares_is_told_to_inherit_it() -> None:
    with pytest.raises(ConfigError, match=UNDECLARED):
        metric_named("./my_ragtrace_plugin.py:Undeclared")


@pytest.mark.parametrize("where", ["./my_ragtrace_plugin.py", "my_ragtrace_plugin"])
def test_a_metric_and_a_judge_are_found_by_address(where: str) -> None:
    assert metric_named(f"{where}:Strict", threshold=0.9).name == "strictness"
    assert isinstance(unwrapped(open_judge(f"{where}:open_mine:tiny")), ScriptedJudge)


def test_an_embedder_is_found_by_address() -> None:
    assert open_embedder("./my_ragtrace_plugin.py:Embedder").identity.model == "mine"
    with pytest.raises(ConfigError, match="gives no embedder: a object without `identity`"):
        open_embedder("./my_ragtrace_plugin.py:open_nothing")
    with pytest.raises(ConfigError, match="there is no embedder 'opnai'"):
        open_embedder("opnai:small")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("./no_such.py:Strict", r"no_such\.py.*FileNotFoundError"),
        ("no_such_module:Strict", "cannot be loaded: ModuleNotFoundError.*no_such_module"),
        ("my_ragtrace_plugin:Strickt", "has no 'Strickt'"),
        ("./raises.py:Strict", r"raises.*cannot be loaded: KeyError\('key'\) \(raises\.py, line 2\)"),
        ("./unclosed.py:Strict", r"cannot be loaded: SyntaxError.*unclosed\.py"),
        ("./needs.py:Strict", r"cannot be loaded: ModuleNotFoundError.*not_there"),
        ("my_ragtrace_plugin:Nameless", r"gives no metric: a Nameless without `name`"),
        ("my_ragtrace_plugin:open_mine", r"cannot be made: open_mine\(\) missing .*'settings'"),
        ("my_ragtrace_plugin:__name__", "is a str: name a class or a function"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_address_is_said(address: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text("\n{}['key']")
    (tmp_path / "unclosed.py").write_text("(")
    (tmp_path / "needs.py").write_text("import not_there")
    with pytest.raises(ConfigError, match=told):
        metric_named(address)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("./no_such.py:open_mine", "FileNotFoundError"),
        ("opnai:gpt-4o", "there is no judge 'opnai'.*openai:MODEL"),
        ("./my_ragtrace_plugin.py:open_mine:large", "cannot be opened: AssertionError"),
        ("./my_ragtrace_plugin.py:open_nothing", "gives no judge: a object without `identity`"),
    ],
)
def test_what_is_wrong_with_a_judge_is_said(spec: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_judge(spec)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Unnatural", r"its score is nan, outside \[0, 1\]"),
        ("Forgetful", "it returned a NoneType"),
        ("Mutable", "its verdicts are not frozen values"),
    ],
)
async def test_what_is_no_result_becomes_a_failure_that_names_its_metric(name: str, told: str) -> None:
    metric = metric_named(f"my_ragtrace_plugin:{name}")
    evaluation = await evaluate(RECORD, metrics=[metric, "faithfulness"], judge=ScriptedJudge())
    [failure], [result] = evaluation.failures, evaluation.results
    assert (failure.metric, failure.error_type) == (name.lower(), "metric_invalid")
    assert told.replace("\\", "") in failure.message
    assert result.score == 1.0
