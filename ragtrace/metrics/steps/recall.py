"""Step D: ask what the chunks say about each sentence of the reference, as step B does about claims."""

from __future__ import annotations

from typing import Final

from ragtrace.judge_forms import VerifyReply
from ragtrace.judge_steps import Verification
from ragtrace.metrics.steps.step import Material, Step
from ragtrace.metrics.steps.verify import render_verify, verdict_tokens, verify_claims
from ragtrace.model import Claim


async def verify_reference(material: Material) -> Verification:
    """Ask for a verdict on each sentence of the reference.

    Raises:
        JudgeError: the judge gave no usable answer.
        JudgeCompromised: it failed a canary claim.
    """
    sentences = [
        Claim(index=index, text=sentence.text, kind="reference")
        for index, sentence in enumerate(material.reference)
    ]
    return await verify_claims(RECALL, sentences, material)


RECALL: Final = Step(
    name="recall",
    prompts=("recall", "retrieval", "verify_yes_no"),
    reply=VerifyReply,
    render=render_verify,
    output_tokens=verdict_tokens,
    items="claims",
    run=verify_reference,
)
