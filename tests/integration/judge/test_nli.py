"""The judge `nli`: ONNX models of each family, made on the spot, judge answers through the public door."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ragtrace import evaluate_sync
from ragtrace.errors import ConfigError
from ragtrace.judge import open_judge
from ragtrace.model import (
    Chunk,
    Evaluation,
    MetricFailure,
    MetricResult,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictLabel,
)
from ragtrace.testing import check_judge
from tests.integration.cli.program import COMMAND
from tests.patience import PATIENCE_S
from tests.tiny_verifiers import FILLER, Family, Verifier

REFUNDS = "Refunds take 14 days."
SHOP = "The shop is open on Sundays."


def record(answer: str, *chunks: str) -> RagRecord:
    texts = chunks or (SHOP, REFUNDS)
    return RagRecord(
        id="r",
        question="How long do refunds take?",
        chunks=tuple(Chunk(id=f"c{at}", text=text) for at, text in enumerate(texts, 1)),
        answer=answer,
    )


def judged(folder: Path, answer: str, *chunks: str, settings: str = "") -> Evaluation:
    return evaluate_sync(record(answer, *chunks), judge=f"nli:{folder}{settings}")


def verdict_on(folder: Path, claim: str, *chunks: str, settings: str = "") -> Verdict:
    [outcome] = judged(
        folder, f"{claim} {SHOP}", *(chunks or (SHOP, REFUNDS)), SHOP, settings=settings
    ).outcomes
    assert not isinstance(outcome, MetricFailure), outcome.message
    return next(verdict for verdict in outcome.verdicts if verdict.claim.text == claim)


def failure(folder: Path, settings: str = "") -> str:
    [outcome] = judged(folder, REFUNDS, settings=settings).outcomes
    assert isinstance(outcome, MetricFailure)
    return f"{outcome.error_type}: {outcome.message}"


def long_text(claim: str, *, before: int) -> str:
    """Return a chunk with a claim behind so many sentences about something else."""
    filler = [f"{' '.join(FILLER[(at + word) % 50] for word in range(9))}." for at in range(before)]
    return " ".join([*filler, claim, *filler])


@pytest.mark.parametrize("family", ["nli", "minicheck", "hhem", "tokens"])
def test_each_family_supports_a_claim_with_its_window_as_the_quote_and_no_other(
    tmp_path: Path, family: Family
) -> None:
    folder = Verifier(family=family, window=96).write(tmp_path)
    there, missing = verdict_on(folder, REFUNDS), verdict_on(folder, "The museum was founded in 1887.")
    assert (there.label, there.chunk_ids, there.quote) == (VerdictLabel.SUPPORTED, ("c2",), REFUNDS)
    assert there.confidence == there.support > 0.6  # type: ignore[operator]
    assert missing.label is VerdictLabel.UNSUPPORTED
    assert missing.confidence == 1 - missing.support > 0.6  # type: ignore[operator]
    within = verdict_on(folder, REFUNDS, long_text(REFUNDS, before=40))
    assert within.label is VerdictLabel.SUPPORTED
    assert REFUNDS in (within.quote or "")
    assert len(within.quote or "") <= 1000


def test_the_order_of_the_labels_is_read_from_the_configuration(tmp_path: Path) -> None:
    folder = Verifier(labels=("entailment", "not_entailment")).write(tmp_path)
    assert verdict_on(folder, REFUNDS).label is VerdictLabel.SUPPORTED
    assert verdict_on(folder, "Refunds take 30 days.").label is VerdictLabel.UNSUPPORTED


def test_a_contradicted_claim_cites_the_window_that_contradicts_it(tmp_path: Path) -> None:
    verdict = verdict_on(Verifier().write(tmp_path), "Refunds do not take 14 days.")
    assert verdict.label is VerdictLabel.CONTRADICTED
    assert (verdict.chunk_ids, verdict.quote) == (("c2",), REFUNDS)


def test_a_token_classifier_names_the_words_that_no_chunk_supports(tmp_path: Path) -> None:
    verdict = verdict_on(Verifier(family="tokens").write(tmp_path), "Refunds take 30 days in Paris.")
    assert verdict.reason == "not in the chunks: '30', 'in Paris'"


def test_verdicts_do_not_depend_on_the_threads(tmp_path: Path) -> None:
    folder = Verifier().write(tmp_path)
    answer = "Refunds take 14 days. Refunds take 30 days. Refunds do not take 14 days. The museum is open."
    found = [judged(folder, answer, settings=more) for more in ("?threads=1", "?threads=2")]
    first, second = (
        [(verdict.label, verdict.support) for verdict in one.results[0].verdicts] for one in found
    )
    assert first == second
    assert len(first) == 4


def test_an_answer_that_the_model_is_undecided_about_never_passes(tmp_path: Path) -> None:
    [outcome] = judged(Verifier().write(tmp_path), REFUNDS, settings="?supported=0.99").outcomes
    assert isinstance(outcome, MetricResult)
    assert (outcome.score, outcome.skip_reason) == (None, SkipReason.ALL_UNJUDGED)


def test_a_chunk_that_writes_the_marks_of_the_tokenizer_does_not_end_the_passage(tmp_path: Path) -> None:
    """Else the rest of the chunk would stand where the claim does, and support whatever it says."""
    folder = Verifier(family="minicheck").write(tmp_path)
    chunk = f"{SHOP} [SEP] {SHOP} [SEP]"
    assert verdict_on(folder, REFUNDS, chunk).label is VerdictLabel.UNSUPPORTED


def test_the_judge_says_who_it_is_and_changes_its_version_with_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "my-verifier"
    first = open_judge(f"nli:{Verifier().write(folder)}").identity
    assert (first.provider, first.model) == ("nli", "my-verifier")
    assert first.computes
    assert first.contradicts
    assert open_judge(f"nli:{folder}?supported=0.7").identity.parameters != first.parameters
    Verifier(labels=("entailment", "neutral", "contradiction")).write(folder)
    assert open_judge(f"nli:{folder}").identity.parameters != first.parameters
    assert open_judge(f"nli:{Verifier(family='hhem').write(folder)}").identity.contradicts is False


def test_the_judge_keeps_the_rules_of_judges(tmp_path: Path) -> None:
    check_judge(open_judge(f"nli:{Verifier().write(tmp_path)}"))


def without(name: str) -> Callable[[Path], object]:
    return lambda path: (Verifier().write(path) / name).unlink()


def written(verifier: Verifier, **config: Any) -> Callable[[Path], object]:
    return lambda path: verifier.write(path, **config)


FOLDERS: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "no tokenizer": (without("tokenizer.json"), "there is no '.*tokenizer.json'"),
    "no model": (without("model.onnx"), r"choose its ONNX file with \?file= \(there are: none\)"),
    "labels of another task": (
        written(Verifier(), id2label={"0": "joy", "1": "anger", "2": "fear"}),
        "says joy, anger, fear: expected entailment",
    ),
    "another architecture": (
        written(Verifier(), architectures=["BertForMaskedLM"]),
        "`architectures` says BertForMaskedLM, which is for another task",
    ),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_that_cannot_be_used_is_refused_at_once(tmp_path: Path, what: str) -> None:
    spoil, message = FOLDERS[what]
    spoil(tmp_path)
    with pytest.raises(ConfigError, match=message):
        judged(tmp_path, REFUNDS)


def damaged(name: str) -> Callable[[Path], object]:
    return lambda path: (Verifier().write(path) / name).write_bytes(b"no model")


MODELS: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "NaN": (written(Verifier(nan_for="all")), "model.onnx gave NaN or infinity"),
    "damaged": (damaged("model.onnx"), "model.onnx cannot be loaded"),
    "tokenizer": (damaged("tokenizer.json"), "tokenizer.json is no tokenizer"),
}


@pytest.mark.parametrize("what", MODELS)
def test_a_model_that_cannot_be_used_is_refused_with_its_file(tmp_path: Path, what: str) -> None:
    spoil, message = MODELS[what]
    spoil(tmp_path)
    assert failure(tmp_path).startswith(f"judge_refused: {tmp_path / message}")


def test_labels_without_names_of_an_unknown_model(tmp_path: Path) -> None:
    Verifier().write(tmp_path, id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})
    with pytest.raises(ConfigError, match=r"config.json: `id2label` \(or \?labels=\) says LABEL_0"):
        judged(tmp_path, REFUNDS)
    assert judged(tmp_path, REFUNDS, settings="?labels=contradiction,entailment,neutral").results


def test_swapped_labels_of_a_model_that_nobody_knows(tmp_path: Path) -> None:
    Verifier().write(tmp_path, id2label={"0": "entailment", "1": "contradiction", "2": "neutral"})
    found = failure(tmp_path)
    assert found.startswith(f"judge_refused: {tmp_path / 'model.onnx'} says of sentences beside themselves")
    assert "config.json: `id2label`" in found


def test_a_claim_longer_than_the_window_is_left_open(tmp_path: Path) -> None:
    claim = f"Refunds take {' '.join(FILLER)} days."
    verdict = verdict_on(Verifier(window=64).write(tmp_path), claim)
    assert verdict.label is VerdictLabel.UNJUDGED
    assert (verdict.reason or "").startswith("the claim has 54 tokens, and the model takes 30")
    assert verdict.support is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("?threds=2", "`threds`: there is no such key (settings: file, family"),
        ("?supported=nan", "`supported`: "),
        ("?supported=.3", "`unsupported` must not be above `supported`"),
    ],
)
def test_a_setting_that_is_wrong(tmp_path: Path, settings: str, message: str) -> None:
    Verifier().write(tmp_path)
    with pytest.raises(ConfigError) as caught:
        judged(tmp_path, REFUNDS, settings=settings)
    assert message in str(caught.value)


def evaluate(folder: Path, judge: str, **environ: str) -> subprocess.CompletedProcess[str]:
    row = {
        "question": "How long?",
        "contexts": ["Refunds take 14 days."],
        "answer": "Refunds take 14 days. Refunds take 30 days.",
    }
    records = folder / "records.jsonl"
    records.write_text(json.dumps(row))
    return subprocess.run(
        [*COMMAND, "evaluate", str(records), "--judge", judge, "--json"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
def test_the_program_judges_by_a_folder_and_its_runtime_reports_to_nobody(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    found = evaluate(tmp_path, f"nli:{Verifier().write(tmp_path / 'verifier')}?threads=1", **home)
    assert found.returncode == 0, found.stderr
    labels = [verdict["label"] for verdict in json.loads(found.stdout)["verdicts"]]
    assert labels == ["supported", "unsupported"]
    assert [*tmp_path.rglob("deviceid")] == []  # by which its maker would know the machine again
