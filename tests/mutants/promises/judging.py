"""What a score means, and what it stands on."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_READINGS: Final = "ragtrace/scoring/formulas.py"
_EVIDENCE: Final = "ragtrace/metrics/_evidence.py"
_VERIFY: Final = "ragtrace/metrics/verify.py"
_SCORING_TESTS: Final = "tests/unit/metrics/test_scoring.py"
_EVIDENCE_TESTS: Final = "tests/unit/metrics/test_evidence.py"
_CANARIES_TESTS: Final = "tests/unit/metrics/test_verify.py"
_STEPS_TESTS: Final = "tests/unit/metrics/test_steps.py"

_NLI_TESTS: Final = "tests/integration/judge/test_nli.py"

MUTANTS: Final = (
    Mutant(
        promise="verifiers",
        breaks="what the model is undecided about is supported",
        file="ragtrace/judge/nli.py",
        old="        if found.support >= cuts.supported:\n",
        new="        if found.support >= cuts.unsupported:\n",
        tests=(f"{_NLI_TESTS}::test_an_answer_that_the_model_is_undecided_about_never_passes",),
    ),
    Mutant(
        promise="scores",
        breaks="where nothing was judged the score is 0",
        file=_READINGS,
        old="return part / whole if whole else None",
        new="return part / whole if whole else 0.0",
        tests=(f"{_SCORING_TESTS}::test_a_reading_is_a_share_or_absent",),
    ),
    Mutant(
        promise="scores",
        breaks="a judge that failed gives the score 0",
        file="ragtrace/pipeline.py",
        old="        return _failure(metric, steps, exc.error_type, str(exc), retryable=exc.retryable)\n",
        new="        return replace(\n"
        "            _skipped(metric, steps, Gap(part=Part.ANSWER, reason=SkipReason.NO_CLAIMS)),\n"
        "            score=0.0,\n            skip_reason=None,\n        )\n",
        tests=(
            "tests/integration/judge/test_openai_compatible.py::test_a_judge_that_fails_is_a_failure_and_no_score",
        ),
    ),
    Mutant(
        promise="scores",
        breaks="a claim is unsupported though not all of the context was shown",
        file=_VERIFY,
        old="    if ruling.label is VerdictLabel.UNSUPPORTED and context.cut:\n",
        new="    if False:\n",
        tests=(f"{_STEPS_TESTS}::test_a_claim_is_not_called_unmentioned_when_chunks_were_left_out",),
    ),
    Mutant(
        promise="scores",
        breaks="a canary claim without a verdict is no failed one",
        file="ragtrace/metrics/_evidence.py",
        old="(supported := heard.get(canary.number)) != canary.supported",
        new="(supported := heard.get(canary.number, canary.supported)) != canary.supported",
        tests=(
            f"{_CANARIES_TESTS}::test_a_planted_claim_without_a_verdict_is_asked_about_again_then_a_failed_canary",
        ),
    ),
    Mutant(
        promise="evidence",
        breaks="a quote is believed, wherever it comes from",
        file=_EVIDENCE,
        old="        return None if found is None else self._text[found]",
        new="        return bare if found is None else self._text[found]",
        tests=(f"{_EVIDENCE_TESTS}::test_what_is_not_in_the_chunk_is_no_quote",),
    ),
)
