"""`ragtrace.scoring.score`: other tools' rules over verdicts of any form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.errors import InputError
from ragtrace.model import Claim, CompatStatus, Verdict, VerdictLabel
from ragtrace.scoring import PROFILES, score, scored_metrics

S, C, N, U = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)


def verdict(label: VerdictLabel) -> Verdict:
    return Verdict(claim=Claim(index=0, text="It rains."), label=label)


def reported(metric: str, profile: str, verdicts: Any, **options: Any) -> tuple[str, float | None]:
    found = score(metric, profile, verdicts, **options)
    return found.status.value, found.raw


@pytest.mark.parametrize(
    "verdicts",
    [
        [verdict(S), verdict(N)],
        [S, N],
        ["S", "N"],
        ["supported", "not_mentioned"],
        ["Yes", " borderline "],
        ["yes", "idk"],
        [{"label": "S"}, {"verdict": "idk"}],
        [{"i": 0, "label": S}, {"i": 1, "label": "neutral"}],
        {"claims": ["a", "b"], "verdicts": [{"label": "S"}, {"label": "N"}]},
        (label for label in (S, N)),
    ],
    ids=lambda verdicts: type(verdicts).__name__,
)
def test_verdicts_are_understood_in_any_form(verdicts: Any) -> None:
    assert reported("faithfulness", "deepeval-4", verdicts) == ("ok", 1.0)


def test_the_same_verdicts_are_worth_something_else_to_each_tool() -> None:
    scores = {profile: score("faithfulness", profile, [S, C, N, N]).raw for profile in PROFILES}
    assert scores == {
        "ragtrace": 0.25,
        "ragas": 0.25,
        "ragas-legacy": 0.25,
        "deepeval-3": 0.75,
        "deepeval-4": 0.75,
        "promptfoo": 0.25,
        "rag_evals": 0.25,
    }


def test_an_answer_without_claims_is_what_each_tool_makes_of_it() -> None:
    assert {profile: reported("faithfulness", profile, []) for profile in PROFILES} == {
        "ragtrace": ("nan", None),
        "ragas": ("nan", None),
        "ragas-legacy": ("nan", None),
        "deepeval-3": ("ok", 1.0),
        "deepeval-4": ("ok", 1.0),
        "promptfoo": ("grader_error", 0.0),
        "rag_evals": ("ok", 0.0),
    }


@pytest.mark.parametrize("missing", [{"verdicts": [S, S, U]}, {"verdicts": [S, S], "n_claims": 3}])
def test_a_missing_verdict_is_ignored_or_a_no(missing: dict[str, Any]) -> None:
    scores = {p: score("faithfulness", p, **missing).raw for p in PROFILES if p != "ragtrace"}
    assert [p for p, value in scores.items() if value == 1.0] == [
        "ragas",
        "ragas-legacy",
        "deepeval-3",
        "deepeval-4",
    ]
    assert scores["promptfoo"] == pytest.approx(2 / 3)
    assert scores["rag_evals"] == pytest.approx(2 / 3)


def test_ragas_calculates_with_the_number_that_was_written() -> None:
    found = score("context_precision", "ragas", [2, 0])
    assert (found.score, found.raw) == (None, pytest.approx(1.9999999999))
    assert score("context_precision", "ragas-legacy", [2, 0]).score == pytest.approx(0.9999999999)
    assert score("context_recall", "ragas", [2, 0]).raw == 1.0
    assert score("context_recall", "ragas-legacy", [2, 0]).raw == 0.5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("faithfulness", "ragas", ["perhaps"]), "the verdict 'perhaps' is not understood: give a Verdict"),
        (("faithfulness", "ragas", [1.5]), "a verdict of type float"),
        (("faithfulness", "ragas", [{"colour": 1}]), r"the keys \['colour'\]"),
        (("faithfulness", "ragas", {"votes": []}), "one of the keys verdicts"),
        (("faithfulness", "ragas", "yes"), "give a list: str is none"),
        (("faithfulness", "ragas", 1), "give a list: int is none"),
        (("hallucination", "ragas", []), "no rule for 'hallucination': choose from answer_relevance"),
        (("faithfulness", "phoenix", []), "choose from ragtrace, ragas"),
        (("groundedness", "ragas", [3]), "the rating 3"),
        (("answer_relevance", "ragas", ["a question"]), "needs a `cosine`"),
        (("answer_relevance", "rag_evals", ["S"]), "the judge's own number"),
    ],
)
def test_what_is_not_understood_is_named(arguments: tuple[str, str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        score(*arguments)


LABELS = st.lists(st.sampled_from([S, C, N, U]), max_size=8)
OF_LABELS = [
    (metric, profile)
    for profile in PROFILES
    for metric in scored_metrics(profile)
    if metric in ("faithfulness", "context_precision", "chunk_precision", "context_recall", "hallucination")
]


@given(LABELS, st.sampled_from(OF_LABELS), st.booleans())
def test_labels_never_leave_0_to_1(labels: list[VerdictLabel], rule: tuple[str, str], strict: bool) -> None:
    found = score(*rule, labels, strict_mode=strict)
    assert found.score is None or 0 <= found.score <= 1
    assert found.status is not CompatStatus.OK or found.score == found.raw


@given(LABELS, st.randoms(use_true_random=False), st.sampled_from(PROFILES))
def test_the_order_of_claims_does_not_matter(labels: list[VerdictLabel], random: Any, profile: str) -> None:
    shuffled = random.sample(labels, len(labels))
    assert score("faithfulness", profile, shuffled) == score("faithfulness", profile, labels)
