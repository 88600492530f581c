"""Step B: ask what the chunks say about each claim, and check the evidence.

There are two forms. *Batched JSON* asks about many claims at once and gets quotes. *P(Yes)* asks about one
claim per call and gets the probability that the judge says yes: small models are better at it, and it gives a
confidence. Both use the same checks, packs and canary claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.errors import JudgeUnable
from ragtrace.judge_forms import NumberedText
from ragtrace.judge_steps import Prompt, Verification, VerifyForm
from ragtrace.metrics._canaries import CanaryClaims
from ragtrace.metrics._context import Material, NumberedContext
from ragtrace.metrics._verdicts import CheckedVerdict, CheckedVerdicts, undecided
from ragtrace.metrics.steps._verify_json import JsonVerifier
from ragtrace.metrics.steps._verify_yes_no import YesNoVerifier
from ragtrace.metrics.verify_settings import VerifySettings
from ragtrace.model import Claim, Usage, Verdict, VerdictLabel
from ragtrace.ports import Judge


async def verify_claims(
    claims: Sequence[Claim],
    context: NumberedContext,
    *,
    judge: Judge,
    prompt: Prompt,
    fence_code: str,
    claims_per_call: int,
    step: str = "verify",
    settings: VerifySettings = VerifySettings(),  # noqa: B008 frozen
    yes_no: Prompt | None = None,
    again: Prompt | None = None,
) -> Verification:
    """Ask for a verdict on each claim.

    Args:
        claims: The claims to look up.
        context: The chunks to look them up in.
        judge: The judge to ask.
        prompt: Instructions of the JSON form.
        fence_code: The code of the record's fences; also seeds the canary claims.
        claims_per_call: Claims per request of the JSON form.
        step: The name of the requests.
        settings: The form of the requests, and their canary claims.
        yes_no: Instructions of the P(Yes) form; without them, the JSON form is used.
        again: Instructions of the second look; without them, there is none.

    Raises:
        JudgeError: the judge gave no usable answer.
        JudgeCompromised: it failed a canary claim.
    """
    numbered = [NumberedText(number=claim.index + 1, text=claim.text) for claim in claims]
    canaries = CanaryClaims(
        seed=fence_code,
        first_number=max((claim.number for claim in numbered), default=0) + 1,
        rate=0.0 if judge.identity.computes else settings.sentinel_rate,
    )
    material = Material(step=step, context=context, judge=judge, fence_code=fence_code, canaries=canaries)
    second_look = again if settings.second_look else None
    batched = JsonVerifier(
        material=material, prompt=prompt, again=second_look, claims_per_call=claims_per_call
    )
    if yes_no and settings.first_form is VerifyForm.LOGPROBS:
        one_by_one = YesNoVerifier(material=material, prompt=yes_no, settings=settings)
        form, found = await _by_probability(one_by_one, batched, numbered, settings)
    else:
        form, found = VerifyForm.JSON, await batched.rule(numbered)
    return Verification(
        verdicts=tuple(_verdict(claim, found.rulings[claim.index + 1], context) for claim in claims),
        rejected=found.rejected,
        form=form,
        canaries_passed=found.canaries_passed,
        canaries_silent=found.canaries_silent,
    )


async def _by_probability(
    one_by_one: YesNoVerifier, batched: JsonVerifier, claims: Sequence[NumberedText], settings: VerifySettings
) -> tuple[VerifyForm, CheckedVerdicts]:
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
        omitted=ruling.omitted,
    )
