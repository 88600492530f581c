"""What a score means, and what it stands on."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_READINGS: Final = "ragtrace/scoring/formulas.py"
_EVIDENCE: Final = "ragtrace/metrics/_evidence.py"
_VERDICTS: Final = "ragtrace/metrics/_verdicts.py"
_VERIFY: Final = "ragtrace/metrics/steps/verify.py"
_SCORING_TESTS: Final = "tests/unit/metrics/test_scoring.py"
_EVIDENCE_TESTS: Final = "tests/unit/metrics/test_evidence.py"
_CANARIES_TESTS: Final = "tests/unit/metrics/test_canaries.py"
_STEPS_TESTS: Final = "tests/unit/metrics/test_steps.py"
_FAITHFULNESS_TESTS: Final = "tests/unit/metrics/test_faithfulness.py"

_VERIFIER: Final = "ragtrace/judge/nli/_verifier.py"
_NLI_TESTS: Final = "tests/integration/judge/test_nli.py"

MUTANTS: Final = (
    Mutant(
        promise="verifiers",
        breaks="a verifier whose labels are swapped judges",
        file=_VERIFIER,
        old="        if len(wrong) > len(found) // 2:\n",
        new="        if len(wrong) > len(found):\n",
        tests=(f"{_NLI_TESTS}::test_swapped_labels_of_a_model_that_nobody_knows",),
    ),
    Mutant(
        promise="verifiers",
        breaks="NaN of a verifier goes on",
        file=_VERIFIER,
        old="        if not np.isfinite(logits).all():\n",
        new="        if not logits.size:\n",
        tests=(f"{_NLI_TESTS}::test_a_model_that_gives_nan",),
    ),
    Mutant(
        promise="verifiers",
        breaks="a chunk that writes the tokenizer's marks decides where the claim begins",
        file=_VERIFIER,
        old="    found.encode_special_tokens = True",
        new="    found.encode_special_tokens = False",
        tests=(
            f"{_NLI_TESTS}::test_a_chunk_that_writes_the_marks_of_the_tokenizer_does_not_end_the_passage",
        ),
    ),
    Mutant(
        promise="verifiers",
        breaks="what the model is undecided about is supported",
        file="ragtrace/judge/nli/judge.py",
        old="        if pooled.support >= cuts.supported:\n",
        new="        if pooled.support >= cuts.unsupported:\n",
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
        breaks="what the chunks do not mention counts as supported",
        file=_READINGS,
        old="    return _share(counts.supported, counts.judged)\n",
        new="    return _share(counts.supported + counts.unsupported, counts.judged)\n",
        tests=(f"{_SCORING_TESTS}::test_the_readings_of_four_claims",),
    ),
    Mutant(
        promise="scores",
        breaks="claims without a verdict count as not supported",
        file=_READINGS,
        old="    return _share(counts.supported, counts.judged)\n",
        new="    return _share(counts.supported, counts.total)\n",
        tests=(f"{_SCORING_TESTS}::test_the_readings_of_four_claims",),
    ),
    Mutant(
        promise="scores",
        breaks="a judge that failed gives the score 0",
        file="ragtrace/pipeline/evaluation.py",
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
        breaks="a verdict that the judge left out is a no",
        file=_VERDICTS,
        old="    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason, omitted=True)\n",
        new="    return CheckedVerdict(label=VerdictLabel.UNSUPPORTED, reason=reason)\n",
        tests=(f"{_STEPS_TESTS}::test_one_claim_that_cuts_every_reply_off_does_not_take_the_others_with_it",),
    ),
    Mutant(
        promise="scores",
        breaks="a verdict that the judge left out is taken for one that it could not give",
        file=_VERDICTS,
        old="    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason, omitted=True)\n",
        new="    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason)\n",
        tests=(
            "tests/unit/metrics/test_pass_rule.py::test_an_answer_of_which_a_wrong_claim_was_left_out_neither_passes_nor_fails",
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
        breaks="an answer passes though few of its claims were decided",
        file="ragtrace/scoring/pass_rule.py",
        old='relation=">=", bound=0.5)',
        new='relation=">=", bound=0.0)',
        tests=(
            "tests/unit/metrics/test_pass_rule.py::test_an_answer_of_which_less_than_half_was_decided_does_not_pass",
        ),
    ),
    Mutant(
        promise="scores",
        breaks="a reply with other numbers than were asked about is believed",
        file="ragtrace/metrics/ask_items.py",
        old="        if misnumbered([*said, *passed], known):\n",
        new="        if False:\n",
        tests=(f"{_STEPS_TESTS}::test_a_reply_with_other_numbers_is_asked_for_again",),
    ),
    Mutant(
        promise="scores",
        breaks="a canary claim without a verdict is no failed one",
        file="ragtrace/metrics/_canaries.py",
        old="(supported := heard.get(canary.number)) != canary.supported",
        new="(supported := heard.get(canary.number, canary.supported)) != canary.supported",
        tests=(
            f"{_CANARIES_TESTS}::test_a_planted_claim_without_a_verdict_is_asked_about_again_then_a_failed_canary",
        ),
    ),
    Mutant(
        promise="cache",
        breaks="a reply that failed a canary claim is cached",
        file="ragtrace/judge/cache.py",
        old="    except JudgeError:\n        return False\n",
        new="    except JudgeError:\n        return True\n",
        tests=(f"{_CANARIES_TESTS}::test_a_cache_keeps_nothing_of_what_a_compromised_judge_said",),
    ),
    Mutant(
        promise="cache",
        breaks="a verdict is kept for a claim in other company",
        file="ragtrace/judge/cache.py",
        old="    return request.user\n",
        new="    return [*request.items.values()][:1]\n",
        tests=(
            "tests/unit/judge/test_cache.py::test_a_verdict_that_was_given_beside_other_claims_is_not_reused",
        ),
    ),
    Mutant(
        promise="evidence",
        breaks="a quote is believed, wherever it comes from",
        file=_EVIDENCE,
        old="        return None if at is None else self._text[",
        new="        return bare if at is None else self._text[",
        tests=(f"{_EVIDENCE_TESTS}::test_what_is_not_in_the_chunk_is_no_quote",),
    ),
    Mutant(
        promise="evidence",
        breaks="'4 days' is quoted from '14 days'",
        file=_EVIDENCE,
        old="    while at >= 0 and (_begins_inside(text, at) or _ends_inside(text, at + len(passage))):\n",
        new="    while False:\n",
        tests=(f"{_EVIDENCE_TESTS}::test_a_quote_begins_with_a_word_and_never_cuts_a_number",),
    ),
    Mutant(
        promise="evidence",
        breaks="a quote is looked up in chunks that were never shown",
        file=_VERDICTS,
        old="cited = tuple(number for number in dict.fromkeys(given.chunks) if number in shown)",
        new="cited = tuple(dict.fromkeys(given.chunks))",
        tests=(f"{_STEPS_TESTS}",),
    ),
    Mutant(
        promise="evidence",
        breaks="every verdict says that its quote was found",
        file=_VERIFY,
        old="quote_verified=ruling.quote is not None,",
        new="quote_verified=True,",
        tests=(f"{_STEPS_TESTS}::test_a_quote_becomes_the_chunks_own_text_and_its_chunk_comes_first",),
    ),
    Mutant(
        promise="evidence",
        breaks="a judge that gets a planted claim wrong is believed",
        file="ragtrace/metrics/_canaries.py",
        old="raise JudgeCompromised(",
        new="JudgeCompromised(",
        tests=(
            "tests/unit/metrics/test_canaries.py::test_a_judge_that_gives_one_verdict_to_all_is_compromised",
        ),
    ),
)
