"""Step B: ask what the chunks say about each claim, and check the evidence.

There are two forms. *Batched JSON* asks about many claims at once and gets quotes. *P(Yes)* asks about one
claim per call and gets the probability that the judge says yes: small models are better at it, and it gives a
confidence. Both use the same checks, packs and canary claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.errors import JudgeUnable
from ragtrace.judge_forms import NumberedText, VerifyInput, VerifyReply
from ragtrace.judge_steps import Verification, VerifyForm
from ragtrace.metrics._canaries import CanaryClaims
from ragtrace.metrics._context import NumberedContext
from ragtrace.metrics._verdicts import CheckedVerdict, CheckedVerdicts, undecided
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.judge_calls import output_tokens
from ragtrace.metrics.steps._sections import chunk_sections, numbered_section
from ragtrace.metrics.steps._verify_json import JsonVerifier, VerifyStep
from ragtrace.metrics.steps._verify_yes_no import YesNoVerifier
from ragtrace.metrics.steps.step import Material, Step
from ragtrace.model import Claim, Usage, Verdict, VerdictLabel


async def verify_answer(material: Material) -> Verification:
    """Ask for a verdict on each claim of the answer.

    Raises:
        JudgeError: the judge gave no usable answer.
        JudgeCompromised: it failed a canary claim.
    """
    claims = (await material.extraction()).claims
    return await verify_claims(VERIFY, claims, material, second_look=material.verify.second_look)


async def verify_claims(
    step: VerifyStep, claims: Sequence[Claim], material: Material, *, second_look: bool = False
) -> Verification:
    """Ask for a verdict on each claim, in the form that the settings choose.

    Raises:
        JudgeError: the judge gave no usable answer.
        JudgeCompromised: it failed a canary claim.
    """
    numbered = [NumberedText(number=claim.index + 1, text=claim.text) for claim in claims]
    canaries = CanaryClaims(
        seed=material.fence_code,
        first_number=max((claim.number for claim in numbered), default=0) + 1,
        rate=0.0 if material.judge.identity.computes else material.verify.sentinel_rate,
    )
    prompts = material.prompts
    batched = JsonVerifier(
        step=step,
        material=material,
        canaries=canaries,
        prompt=prompts.named(step.prompts[0]),
        again=prompts.verify_again if second_look else None,
    )
    one_by_one = YesNoVerifier(
        step=step.name, material=material, canaries=canaries, prompt=prompts.verify_yes_no
    )
    form, found = await _in_chosen_form(one_by_one, batched, numbered)
    if material.judge.identity.folds_contradicted:
        found = found.without_contradicted()
    return Verification(
        verdicts=tuple(_verdict(claim, found.rulings[claim.index + 1], material.context) for claim in claims),
        rejected=found.rejected,
        form=form,
        canaries_passed=found.canaries_passed,
    )


def render_verify(given: VerifyInput, code: str) -> str:
    """Render the chunks first, so that calls about the same chunks share a prefix."""
    return fenced(code, [*chunk_sections(given.chunks), numbered_section("claims", given.claims)])


def verdict_tokens(given: VerifyInput) -> int:
    """Return how many tokens the verdicts on these claims may need."""
    return output_tokens([claim.text for claim in given.claims])


VERIFY: Final = Step(
    name="verify",
    prompts=("verify", "verify_yes_no", "verify_again"),
    after=("extract",),
    reply=VerifyReply,
    render=render_verify,
    output_tokens=verdict_tokens,
    items="claims",
    run=verify_answer,
)


async def _in_chosen_form(
    one_by_one: YesNoVerifier, batched: JsonVerifier, claims: Sequence[NumberedText]
) -> tuple[VerifyForm, CheckedVerdicts]:
    settings = batched.material.verify
    if settings.first_form is VerifyForm.JSON:
        return VerifyForm.JSON, await batched.rule(claims)
    try:
        return VerifyForm.LOGPROBS, await one_by_one.rule(claims)
    except JudgeUnable as unable:  # judges remember it, so no later record pays for it
        if settings.form is VerifyForm.LOGPROBS:
            advice = "set the verify form to `json` or `auto`"
            raise JudgeUnable(f"{unable}: {advice}", usage=Usage()) from unable
    return VerifyForm.JSON, await batched.rule(claims)


def _verdict(claim: Claim, ruling: CheckedVerdict, context: NumberedContext) -> Verdict:
    if ruling.label is VerdictLabel.UNSUPPORTED and context.cut:
        ruling = undecided(
            "unsupported by the chunks that were shown, and the context is too long to show all"
        )
    return Verdict(
        claim=claim,
        label=ruling.label,
        reason=ruling.reason,
        chunk_ids=tuple(dict.fromkeys(context.id_of(number) for number in ruling.chunks)),
        quote=ruling.quote,
        quote_verified=ruling.quote is not None,
        confidence=ruling.confidence,
        support=ruling.support,
        omitted=ruling.omitted,
        decided_by=ruling.decided_by,
    )
