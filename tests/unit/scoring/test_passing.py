"""The rule of a pass: what it reads, and what it says where verdicts are missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.errors import ConfigError
from ragtrace.model import Claim, Verdict, VerdictCounts, VerdictLabel
from ragtrace.scoring import PassRule, strict_faithfulness
from ragtrace.scoring.formulas import Readings, claim_readings

DEFAULT = "material_contradicted == 0 and material_unsupported == 0 and coverage >= 0.5"
LABELS = {
    "S": VerdictLabel.SUPPORTED,
    "C": VerdictLabel.CONTRADICTED,
    "N": VerdictLabel.UNSUPPORTED,
    "U": VerdictLabel.UNJUDGED,
}
"""A small letter is a verdict whose flaw is incidental."""


def readings(verdicts: str) -> Readings:
    found = [
        Verdict(claim=Claim(index=n, text="?"), label=LABELS[letter.upper()], material=letter.isupper())
        for n, letter in enumerate(verdicts)
    ]
    return claim_readings(strict_faithfulness(VerdictCounts.of(found)), found)


def decided(rule: str, verdicts: str) -> bool | None:
    """Decide on S, C, N, U (the judge abstained) and ``?`` (it left the verdict out)."""
    given, worst, best = (readings(verdicts.replace("?", letter)) for letter in "UCS")
    return PassRule.parse(rule).decide(given, worst=worst, best=best)


@pytest.mark.parametrize(
    ("rule", "verdicts", "passes"),
    [
        (DEFAULT, "SS", True),
        (DEFAULT, "SSSSSN", False),
        (DEFAULT, "SC", False),
        (DEFAULT, "SU", True),
        (DEFAULT, "SUU", None),
        (DEFAULT, "CUUUU", False),
        (DEFAULT, "Sn", True),
        (DEFAULT, "Sc", True),
        (DEFAULT, "ccnn", True),
        (DEFAULT, "SnN", False),
        (DEFAULT, "Sn?", None),
        (DEFAULT, "snUUU", None),
        ("contradicted == 0 and unsupported == 0", "Sn", False),
        ("material_unsupported <= 1", "SNn", True),
        ("score >= 0.7", "Sn", False),
        (DEFAULT, "SSS?", None),
        (DEFAULT, "SC?", False),
        ("score >= 0.5", "SC", True),
        ("score >= 0.5", "SSC?", True),
        ("score >= 0.5", "SC?", None),
        ("score >= 0.5", "CC?", False),
        ("contradicted == 0", "SN", True),
        ("contradicted == 0", "SCN", False),
        ("unsupported <= 1", "SN", True),
        ("unsupported <= 1", "SNN", False),
        ("score >= 0.5", "SU", True),
        ("score >= 0.5", "SUU", None),
        ("score >= 0.5", "CUU", False),
        ("score >= 0.5 and coverage >= 0.2", "SUU", True),
        ("contradicted == 0", "SUU", None),
        ("lower_bound >= 0.5", "SUU", False),
        ("lenient > 0.5 and coverage >= 0.9", "SNNC", True),
        ("lenient > 0.5 and coverage >= 0.9", "SNNCU", None),
        ("supported >= 2", "SS", True),
    ],
)
def test_a_rule_decides_on_verdicts(rule: str, verdicts: str, passes: bool | None) -> None:
    assert decided(rule, verdicts) is passes


@given(
    st.sampled_from(
        ["score >= 0", "score >= 0.5", "contradicted == 0", "unsupported <= 1 and lenient > 0.2"]
    ),
    st.text("SCNU?", min_size=1, max_size=12),
)
def test_no_rule_passes_what_is_mostly_open_unless_it_says_how_much_may_be(rule: str, verdicts: str) -> None:
    if decided(rule, verdicts):
        assert sum(letter in "SCN" for letter in verdicts) * 2 >= len(verdicts)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is not a condition such as `score >= 0.8`"),
        ("score", "'score' is not a condition"),
        ("score >= ", "not a condition"),
        ("score > 0.5 or contradicted == 0", "not a condition"),
        ("contradicted == 0 and", "'' is not a condition"),
        ("score >= nan", "not a condition"),
        ("accuracy >= 0.5", "there is no 'accuracy' to compare: choose from score, lenient"),
        ("__import__('os') == 0", "not a condition"),
    ],
)
def test_what_is_no_rule_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match="`pass_when` is ") as raised:
        PassRule.parse(text)
    assert told in str(raised.value)
