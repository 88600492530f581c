"""Opening `llama:PATH`: what is wrong is said before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError
from ragtrace.judge import open_judge, unwrapped
from ragtrace.judge.factory import JudgeSettings
from ragtrace.judge.llama import LlamaJudge, open_llama


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny model.gguf"
    path.write_bytes(b"GGUF\0\0\0\0")
    return path


def test_a_judge_is_named_after_its_file_and_starts_nothing_yet(model: Path) -> None:
    judge = open_judge(f"llama:{model}")
    assert (judge.identity.provider, judge.identity.model) == ("llama", "tiny model.gguf")
    inner = unwrapped(judge)
    assert isinstance(inner, LlamaJudge)
    assert inner.output_mode is inner.likelihoods is None


async def test_a_judge_that_was_never_asked_is_closed_in_peace(model: Path) -> None:
    await open_judge(f"llama:{model}").aclose()


def test_a_local_model_gets_time_and_no_more_requests_than_it_has_slots(model: Path) -> None:
    judge = open_llama(JudgeSettings(argument=f"{model}?parallel=3&n_ctx=512&threads=1"))
    assert isinstance(judge, LlamaJudge)
    assert (judge.most_at_once, judge.least_timeout_s) == (3, 600)
    patient = open_llama(JudgeSettings(argument=str(model), timeout_s=900))
    assert isinstance(patient, LlamaJudge)
    assert (patient.most_at_once, patient.least_timeout_s) == (1, 900)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?ctx=1", "no setting 'ctx': choose among n_ctx, threads, parallel"),
        ("?n_ctx=many", "n_ctx='many' is not a whole number above 0"),
        ("?threads=0", "threads='0' is not a whole number above 0"),
        ("?parallel=-1", "parallel='-1'"),
        ("?n_ctx=", "n_ctx=''"),
        ("?n_ctx=²", "n_ctx='²'"),
    ],
)
def test_a_wrong_setting_is_named(query: str, says: str, model: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_judge(f"llama:{model}{query}")
    assert says in str(caught.value)


def test_a_file_that_is_missing_or_another_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for name, says in (("none.gguf", "No such file"), (".", "Is a directory"), ("notes.txt", "no GGUF file")):
        with pytest.raises(ConfigError, match=says):
            open_judge(f"llama:{tmp_path / name}")
    with pytest.raises(ConfigError, match="needs a model"):
        open_judge("llama:")


def test_a_missing_extra_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[llama\]"):
        open_judge(f"llama:{model}")
