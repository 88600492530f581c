"""The rule of a pass, and other tools' rules over verdicts of any form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.errors import ConfigError, InputError
from ragtrace.model import Claim, CompatStatus, Verdict, VerdictCounts, VerdictLabel
from ragtrace.scoring import PROFILES, score, scored_metrics
from ragtrace.scoring.formulas import PassRule, Readings, claim_readings, strict_faithfulness

DEFAULT = "material_contradicted == 0 and material_unsupported == 0 and coverage >= 0.5"
LETTERS = dict(
    zip("SCNU", map(VerdictLabel, ("supported", "contradicted", "unsupported", "unjudged")), strict=True)
)
"""A small letter is a verdict whose flaw is incidental."""


def readings(verdicts: str) -> Readings:
    found = [
        Verdict(claim=Claim(index=n, text="?"), label=LETTERS[letter.upper()], material=letter.isupper())
        for n, letter in enumerate(verdicts)
    ]
    return claim_readings(strict_faithfulness(VerdictCounts.of(found)), found)


def decided(rule: str, verdicts: str) -> bool | None:
    """Decide on S, C, N, U (the judge abstained) and ``?`` (it left the verdict out)."""
    given, worst, best = (readings(verdicts.replace("?", letter)) for letter in "UCS")
    return PassRule.parse(rule).decide(given, worst=worst, best=best)


@pytest.mark.parametrize(
    ("rule", "passing", "failing", "undecided"),
    [
        (DEFAULT, "SS SU Sn Sc ccnn", "SSSSSN SC CUUUU SnN SC?", "SUU Sn? snUUU SSS?"),
        ("score >= 0.5", "SC SSC? SU", "CC? CUU", "SC? SUU"),
        ("score >= 0.7", "SS", "Sn", ""),
        ("score >= 0.5 and coverage >= 0.2", "SUU", "", ""),
        ("contradicted == 0 and unsupported == 0", "SS", "Sn", ""),
        ("contradicted == 0", "SN", "SCN", "SUU"),
        ("unsupported <= 1", "SN", "SNN", ""),
        ("material_unsupported <= 1", "SNn", "SNN", ""),
        ("lower_bound >= 0.5", "SU", "SUU", ""),
        ("lenient > 0.5 and coverage >= 0.9", "SNNC", "", "SNNCU"),
        ("supported >= 2", "SS", "SN", ""),
    ],
)
def test_a_rule_decides_on_verdicts(rule: str, passing: str, failing: str, undecided: str) -> None:
    for expected, cases in ((True, passing), (False, failing), (None, undecided)):
        for verdicts in cases.split():
            assert decided(rule, verdicts) is expected, verdicts


@given(
    st.sampled_from(
        ["score >= 0", "score >= 0.5", "contradicted == 0", "unsupported <= 1 and lenient > 0.2"]
    ),
    st.text("SCNU?", min_size=1, max_size=12),
)
def test_no_rule_passes_what_is_mostly_open_unless_it_says_how_much_may_be(rule: str, verdicts: str) -> None:
    if decided(rule, verdicts):
        assert sum(letter in "SCN" for letter in verdicts) * 2 >= len(verdicts)


def test_where_nothing_was_judged_there_is_no_reading() -> None:
    assert [readings("UU")[name] for name in ("score", "lenient", "coverage")] == [None, None, 0.0]
    assert readings("")["coverage"] is None


def test_what_is_no_rule_is_told() -> None:
    for text, told in [
        ("", "'' is not a condition such as `score >= 0.8`"),
        ("score", "'score' is not a condition"),
        ("score >= ", "not a condition"),
        ("score > 0.5 or contradicted == 0", "not a condition"),
        ("contradicted == 0 and", "'' is not a condition"),
        ("score >= nan", "not a condition"),
        ("accuracy >= 0.5", "there is no 'accuracy' to compare: choose from score, lenient"),
        ("__import__('os') == 0", "not a condition"),
    ]:
        with pytest.raises(ConfigError, match="`pass_when` is ") as raised:
            PassRule.parse(text)
        assert told in str(raised.value), text


S, C, N, U = LETTERS.values()


def verdict(label: VerdictLabel) -> Verdict:
    return Verdict(claim=Claim(index=0, text="It rains."), label=label)


def reported(metric: str, profile: str, verdicts: Any, **options: Any) -> tuple[str, float | None]:
    found = score(metric, profile, verdicts, **options)
    return found.status.value, found.raw


def test_verdicts_are_understood_in_any_form() -> None:
    for verdicts in [
        [verdict(S), verdict(N)],
        ["S", "not_mentioned"],
        ["Yes", " borderline "],
        [{"label": "S"}, {"verdict": "idk"}],
        {"claims": ["a", "b"], "verdicts": [{"label": "S"}, {"label": "N"}]},
        (label for label in (S, N)),
    ]:
        assert reported("faithfulness", "deepeval-4", verdicts) == ("ok", 1.0), verdicts


def test_the_same_verdicts_are_worth_something_else_to_each_tool() -> None:
    scores = {profile: score("faithfulness", profile, [S, C, N, N]).raw for profile in PROFILES}
    assert scores == {**dict.fromkeys(PROFILES, 0.25), "deepeval-3": 0.75, "deepeval-4": 0.75}


def test_an_answer_without_claims_is_what_each_tool_makes_of_it() -> None:
    assert {profile: reported("faithfulness", profile, []) for profile in PROFILES} == {
        "ragas": ("nan", None),
        "ragas-legacy": ("nan", None),
        "deepeval-3": ("ok", 1.0),
        "deepeval-4": ("ok", 1.0),
        "promptfoo": ("grader_error", 0.0),
        "rag_evals": ("ok", 0.0),
    }


def test_a_missing_verdict_is_ignored_or_a_no() -> None:
    ignored = dict.fromkeys(("ragas", "ragas-legacy", "deepeval-3", "deepeval-4"), 1.0)
    for missing in ({"verdicts": [S, S, U]}, {"verdicts": [S, S], "n_claims": 3}):
        scores = {p: score("faithfulness", p, **missing).raw for p in PROFILES}
        assert scores == pytest.approx({**ignored, "promptfoo": 2 / 3, "rag_evals": 2 / 3}), missing


def test_ragas_calculates_with_the_number_that_was_written() -> None:
    found = score("context_precision", "ragas", [2, 0])
    assert (found.score, found.raw) == (None, pytest.approx(1.9999999999))
    assert score("context_precision", "ragas-legacy", [2, 0]).score == pytest.approx(0.9999999999)
    assert score("context_recall", "ragas", [2, 0]).raw == 1.0
    assert score("context_recall", "ragas-legacy", [2, 0]).raw == 0.5


def test_what_is_not_understood_is_named() -> None:
    for arguments, complaint in [
        (("faithfulness", "ragas", ["perhaps"]), "the verdict 'perhaps' is not understood: give a Verdict"),
        (("faithfulness", "ragas", [{"colour": 1}]), "the verdict {'colour': 1} is not understood"),
        (("faithfulness", "ragas", {"votes": []}), "one of the keys verdicts"),
        (("faithfulness", "ragas", "yes"), "give a list, or a mapping"),
        (("hallucination", "ragas", []), "no rule for 'hallucination': choose from answer_relevance"),
        (("faithfulness", "phoenix", []), "choose from ragas, ragas-legacy"),
        (("groundedness", "ragas", [3]), "the rating 3"),
        (("answer_relevance", "ragas", ["a question"]), "needs a `cosine`"),
        (("answer_relevance", "rag_evals", ["S"]), "the judge's own number"),
    ]:
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
