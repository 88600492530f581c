"""Steps B and D: ask what the chunks say about each claim, or about each sentence of the reference.

There are two forms. *Batched JSON* asks about many claims at once and gets quotes. *P(Yes)* asks about one
claim per call and gets the probability that the judge says yes: small models are better at it, and it gives a
confidence. With p for P(yes, the chunks support the claim), and q for P(yes, they contradict it), which is
asked about the others, p is the confidence of supported, (1 - p)·q of contradicted, (1 - p)·(1 - q) of
neither. Both forms use the same checks, packs and canary claims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from ragtrace.errors import JudgeNonsense, JudgeUnable
from ragtrace.judge_forms import (
    GivenVerdict,
    NumberedText,
    VerdictWord,
    VerifyInput,
    VerifyReply,
    YesNoInput,
    YesNoQuestion,
)
from ragtrace.judge_steps import Prompt, Verification, VerifyForm
from ragtrace.metrics._evidence import CanaryClaim, CanaryClaims, check_canaries
from ragtrace.metrics.asking import (
    ItemReplies,
    Material,
    Step,
    ask_items,
    batches,
    chunk_sections,
    numbered_section,
    output_tokens,
    together,
)
from ragtrace.metrics.fence import fenced
from ragtrace.model import OF_REFERENCE, Claim, DecidedBy, Usage, Verdict, VerdictLabel
from ragtrace.ports import JudgeRequest, YesProbability
from ragtrace.sentences import Sentence

_LABELS: Mapping[VerdictWord, VerdictLabel] = {
    "supported": VerdictLabel.SUPPORTED,
    "contradicted": VerdictLabel.CONTRADICTED,
    "not_mentioned": VerdictLabel.UNSUPPORTED,
}
_FOLDED = "the judge says contradicted, which by its card it says too often"


def _without_contradicted(verdict: Verdict) -> Verdict:
    """Turn *contradicted* into *unsupported*, with the evidence."""
    if verdict.label is not VerdictLabel.CONTRADICTED:
        return verdict
    reason = f"{_FOLDED}: {verdict.reason}" if verdict.reason else _FOLDED
    return replace(verdict, label=VerdictLabel.UNSUPPORTED, reason=reason)


def _with_support(verdict: Verdict, support: float | None) -> Verdict:
    """Add the probability of support; a label is right with it, or with the rest, if who gave it decided."""
    if support is None or support == verdict.support:
        return verdict
    if verdict.decided_by is DecidedBy.JUDGE:
        return replace(verdict, support=support)
    by_label = {VerdictLabel.SUPPORTED: support, VerdictLabel.UNSUPPORTED: 1 - support}
    return replace(verdict, support=support, confidence=by_label.get(verdict.label))


def _combined(claim: Claim, verdicts: Sequence[Verdict]) -> Verdict:
    """Combine the verdicts on a claim from several packs of chunks.

    One supporting pack is enough. ``unsupported`` needs all packs, and has the lowest confidence of them; it
    is incidental if one pack has all but an incidental word. A material contradiction takes precedence, then
    evidence with a quote, then the higher confidence. The probability of support is the
    highest of all packs.
    """
    if not verdicts:
        return Verdict(claim=claim, label=VerdictLabel.UNJUDGED, reason="no chunk with text was shown")
    support = max((verdict.support for verdict in verdicts if verdict.support is not None), default=None)
    for label in (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED, VerdictLabel.UNJUDGED):
        if alike := [verdict for verdict in verdicts if verdict.label is label]:
            best = max(alike, key=lambda v: (v.material, v.quote is not None, v.omitted, v.confidence or 0.0))
            return _with_support(best, support)
    return _with_support(min(verdicts, key=lambda v: (v.material, v.confidence or 0.0)), support)


def _numbered(claims: Iterable[Claim]) -> list[NumberedText]:
    return [NumberedText(number=claim.index + 1, text=claim.text) for claim in claims]


Pack: TypeAlias = Sequence[NumberedText]
VerifyStep: TypeAlias = Step[VerifyInput, VerifyReply, Verification]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonVerifier:
    """Requests verdicts in batches of claims."""

    step: VerifyStep
    material: Material
    canaries: CanaryClaims
    prompt: Prompt
    again: Prompt | None
    """The prompt of the second look at claims that are not supported; ``None`` for no second look."""
    question: str | None
    """The question that the claims answer."""

    async def rule(self, claims: Sequence[Claim]) -> Verification:
        """Return a verdict on every claim.

        A second look changes one to *supported* only with a quote from the chunks.
        """
        found = await self.rule_once(claims, self.material.context.packs)
        doubtful = [verdict.claim for verdict in found.verdicts if verdict.label in _DOUBTFUL]
        if self.again is None or not doubtful:
            return found
        looking_again = replace(self, prompt=self.again, again=None)
        reordered = [tuple(reversed(pack)) for pack in self.material.context.packs]
        second = await looking_again.rule_once(doubtful, reordered)
        better = {
            verdict.claim: verdict
            for verdict in second.verdicts
            if verdict.label is VerdictLabel.SUPPORTED and verdict.quote_verified
        }
        return Verification(
            verdicts=tuple(better.get(verdict.claim, verdict) for verdict in found.verdicts),
            rejected=found.rejected + second.rejected,
            canaries_passed=found.canaries_passed + second.canaries_passed,
        )

    async def rule_once(self, claims: Sequence[Claim], packs: Iterable[Pack]) -> Verification:
        """Return a verdict on every claim, without a second look."""
        size = self.material.limits.claims_per_call
        asked = [(pack, batch) for pack in packs for batch in batches(_numbered(claims), size)]
        cut_off = ItemReplies[GivenVerdict].cut_off
        replies = await together(ask_items(batch, partial(self._ask, pack), cut_off) for pack, batch in asked)
        heard = [(pack, reply) for (pack, _), reply in zip(asked, replies, strict=True)]
        return Verification(
            verdicts=tuple(
                _combined(
                    claim,
                    [v for pack, reply in heard if (v := self._checked(claim, pack, reply)) is not None],
                )
                for claim in claims
            ),
            rejected=sum(reply.rejected for reply in replies),
            canaries_passed=sum(reply.canaries_passed for reply in replies),
        )

    def _checked(self, claim: Claim, pack: Pack, replies: ItemReplies[GivenVerdict]) -> Verdict | None:
        """Return the verdict on a claim with its evidence; ``None`` if it was not asked for."""
        number = claim.index + 1
        if number in replies.found:
            verdict = self._with_evidence(claim, replies.found[number], pack)
        elif number in replies.given_up:
            verdict = replies.unjudged(claim)
        else:
            return None
        verdict = replace(verdict, decided_by=replies.decided_by.get(number))
        return _with_support(verdict, replies.support.get(number))

    def _with_evidence(self, claim: Claim, given: GivenVerdict, pack: Pack) -> Verdict:
        verdict = Verdict(
            claim=claim,
            label=_LABELS[given.label],
            reason=given.reason.strip() or None,
            material=given.material or given.label == "supported",
        )
        if verdict.label is VerdictLabel.UNSUPPORTED:
            return verdict
        context, shown = self.material.context, {chunk.number for chunk in pack}
        cited = [number for number in dict.fromkeys(given.chunks) if number in shown]
        quotes = ((number, context.find_quote(number, given.quote)) for number in cited)
        holder, quote = next((found for found in quotes if found[1]), (None, None))
        cited.sort(key=lambda number: number != holder)
        return replace(
            verdict, chunk_ids=context.ids_of(cited), quote=quote, quote_verified=quote is not None
        )

    async def _ask(
        self, pack: Pack, claims: Sequence[NumberedText], answered: Sequence[NumberedText], again: bool
    ) -> ItemReplies[GivenVerdict]:
        canary_claims = self.canaries.among(pack)
        reply = await self.material.judge.ask(self._request(pack, claims, canary_claims, again))
        if all(reply.decided_by.get(claim.number) is DecidedBy.SCREEN for claim in claims):
            canary_claims = ()  # nobody was asked about them
        canaries = {canary.number for canary in canary_claims}
        checked = ItemReplies.check(
            ((given.id, given) for given in reply.value.verdicts),
            asked=claims,
            abstained=reply.abstained,
            notes=reply.notes,
            canaries=canaries,
        )
        if checked.missing(claims) and not (again and canaries.difference(reply.value.ids)):
            return checked
        return replace(
            checked,
            canaries_passed=check_canaries(canary_claims, _said_supported(reply.value)),
            support=reply.support,
            decided_by=reply.decided_by,
        )

    def _request(
        self, pack: Pack, claims: Sequence[NumberedText], canary_claims: tuple[CanaryClaim, ...], again: bool
    ) -> JudgeRequest[VerifyReply]:
        given = VerifyInput(
            chunks=tuple(pack),
            question=self.question,
            claims=self.canaries.weave(claims, canary_claims),
        )

        def about(numbers: Collection[int]) -> JudgeRequest[VerifyReply]:
            kept = [claim for claim in claims if claim.number in numbers]
            return self._request(pack, kept, canary_claims if kept else (), again)

        def check(reply: VerifyReply) -> None:
            check_canaries(canary_claims, _said_supported(reply))

        return self.step.request(
            given, self.material, prompt=self.prompt, items=claims, about=about, check=check, again=again
        )


_DOUBTFUL = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)


def _said_supported(reply: VerifyReply) -> list[tuple[int, bool]]:
    return [(given.id, given.label == "supported") for given in reply.verdicts]


_EVEN = 0.5
_OUTPUT_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNoVerifier:
    """Requests the probability of a *yes* for each claim."""

    step: str
    material: Material
    canaries: CanaryClaims
    prompt: Prompt

    async def rule(self, judged: Sequence[Claim]) -> Verification:
        """Return a verdict on every claim.

        Raises:
            JudgeUnable: the judge gives no log-probabilities.
            JudgeError: it gave no usable answer to any question.
            JudgeCompromised: it failed a canary claim.
        """
        claims = _numbered(judged)
        heard = await together(self._hear(pack, claims) for pack in self.material.context.packs)
        if claims and heard and not any(pack.support for pack in heard):
            raise JudgeNonsense("the judge answered neither yes nor no to any question", usage=Usage())
        if self.material.verify.second_look:
            doubtful = self._doubtful(claims, heard)
            heard = await together(self._hear_again(pack, doubtful) for pack in heard)
        doubtful = self._doubtful(claims, heard)
        heard = await together(self._hear_against(pack, doubtful) for pack in heard)
        return Verification(
            verdicts=tuple(
                _combined(claim, [self._verdict(pack, claim) for pack in heard]) for claim in judged
            ),
            rejected=0,
            form=VerifyForm.LOGPROBS,
            canaries_passed=sum(pack.canaries_passed for pack in heard),
        )

    def _doubtful(self, claims: Sequence[NumberedText], heard: Sequence[_Heard]) -> list[NumberedText]:
        return [c for c in claims if not any(self._is_yes(pack.support.get(c.number, 0.0)) for pack in heard)]

    async def _hear(self, pack: Pack, claims: Sequence[NumberedText]) -> _Heard:
        canary_claims = self.canaries.among(pack) if claims else ()
        planted = [NumberedText(number=canary.number, text=canary.text) for canary in canary_claims]
        told = await self._ask_each(pack, planted, "support", canary_claims)
        # before the claims: of a record that fails a canary there is no verdict, in no cache either
        passed = check_canaries(
            canary_claims if told else (), [(number, self._is_yes(p)) for number, p in told.items()]
        )
        said = await self._ask_each(pack, claims, "support")
        if said and not told:
            check_canaries(canary_claims, ())
        return _Heard(pack=pack, support=said, canaries_passed=passed)

    async def _hear_again(self, heard: _Heard, doubtful: Sequence[NumberedText]) -> _Heard:
        """Repeat with the chunks in reverse order and take the mean, so that their order does not matter."""
        if len(heard.pack) < 2:
            return heard
        again = await self._ask_each(heard.pack[::-1], doubtful, "support")
        mean = {number: (p + heard.support.get(number, p)) / 2 for number, p in again.items()}
        return replace(heard, support={**heard.support, **mean})

    async def _hear_against(self, heard: _Heard, doubtful: Sequence[NumberedText]) -> _Heard:
        if self.material.judge.identity.folds_contradicted:
            return heard
        answered = [claim for claim in doubtful if claim.number in heard.support]
        return replace(heard, against=await self._ask_each(heard.pack, answered, "contradict"))

    async def _ask_each(
        self,
        pack: Pack,
        items: Sequence[NumberedText],
        question: YesNoQuestion,
        canary_claims: Sequence[CanaryClaim] = (),
    ) -> Mapping[int, float]:
        """Return P(yes) by number; items without a yes or no are left out."""
        if not items:
            return {}
        guards = tuple(canary.text for canary in self.canaries.among(pack))

        async def ask(item: NumberedText) -> float | None:
            own = [canary for canary in canary_claims if canary.number == item.number]
            return await self._ask(pack, item, question, own, guards)

        # the first one alone, so that the others find the chunks in the server's prefix cache
        first = await ask(items[0])
        others = await together(map(ask, items[1:]))
        answers = zip(items, [first, *others], strict=True)
        return {item.number: p for item, p in answers if p is not None}

    async def _ask(
        self,
        pack: Pack,
        item: NumberedText,
        question: YesNoQuestion,
        own: Sequence[CanaryClaim],
        guards: tuple[str, ...],
    ) -> float | None:
        def check(reply: YesProbability) -> None:
            check_canaries(own, [(item.number, self._is_yes(reply.p_yes))])

        request = JudgeRequest(
            step=self.step,
            system=self.prompt.text,
            user=_render(pack, item.text, question, self.material.fence_code),
            reply_type=YesProbability,
            inputs=YesNoInput(chunks=tuple(pack), claim=item.text, question=question),
            max_output_tokens=_OUTPUT_TOKENS,
            check=check,
            canaries=guards,
        )
        try:
            return (await self.material.judge.ask(request)).value.p_yes
        except JudgeNonsense:
            return None

    def _is_yes(self, p: float) -> bool:
        return p >= self.material.verify.threshold

    def _verdict(self, heard: _Heard, claim: Claim) -> Verdict:
        number, context = claim.index + 1, self.material.context
        p, q = heard.support.get(number), heard.against.get(number)
        alone = {chunk.number for chunk in heard.pack}
        only = context.ids_of(alone) if len(alone) == 1 else ()
        if p is not None and self._is_yes(p):
            supported = Verdict(claim=claim, label=VerdictLabel.SUPPORTED, chunk_ids=only, confidence=p)
            # this form has no quotes: a chunk that contains the claim verbatim is cited
            for chunk in heard.pack:
                if quote := context.find_quote(chunk.number, claim.text.rstrip(" .")):
                    ids = context.ids_of([chunk.number])
                    return replace(supported, chunk_ids=ids, quote=quote, quote_verified=True)
            return supported
        if p is None or q is None:  # q is not asked for either if another pack supports the claim
            neither = "said neither that the chunks contradict the claim nor that they do not"
            what = "answered neither yes nor no" if p is None else neither
            return Verdict(claim=claim, label=VerdictLabel.UNJUDGED, reason=f"the judge {what}", omitted=True)
        if q >= _EVEN:
            label = VerdictLabel.CONTRADICTED
            return Verdict(claim=claim, label=label, chunk_ids=only, confidence=(1 - p) * q)
        return Verdict(claim=claim, label=VerdictLabel.UNSUPPORTED, confidence=(1 - p) * (1 - q))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """The judge's probabilities about one pack of chunks, by claim number."""

    pack: Pack
    support: Mapping[int, float]
    against: Mapping[int, float] = field(default_factory=dict)
    canaries_passed: int


def _render(pack: Pack, claim: str, question: YesNoQuestion, code: str) -> str:
    """Put the chunks first, the same for all claims, so that servers and providers keep what they read."""
    asked = f"Do the chunks {question} the claim? Answer Yes or No."
    return "\n".join([fenced(code, [*chunk_sections(pack), ("claim", [" ".join(claim.split())])]), asked])


async def verify_answer(material: Material) -> Verification:
    """Ask for a verdict on each claim of the answer."""
    claims = (await material.extraction()).claims
    return await verify_claims(VERIFY, claims, material, second_look=material.verify.second_look)


async def verify_claims(
    step: VerifyStep, claims: Sequence[Claim], material: Material, *, second_look: bool = False
) -> Verification:
    """Ask for a verdict on each claim, in the form that the settings choose."""
    canaries = CanaryClaims(
        seed=material.fence_code,
        first_number=max((claim.index + 1 for claim in claims), default=0) + 1,
        rate=0.0 if material.judge.identity.computes else material.verify.sentinel_rate,
    )
    prompts = material.prompts
    batched = JsonVerifier(
        step=step,
        material=material,
        canaries=canaries,
        prompt=prompts.named(step.prompts[0]),
        again=prompts.verify_again if second_look else None,
        question=material.record.question if step is VERIFY else None,
    )
    one_by_one = YesNoVerifier(
        step=step.name, material=material, canaries=canaries, prompt=prompts.verify_yes_no
    )
    found = await _in_chosen_form(one_by_one, batched, claims)
    if material.judge.identity.folds_contradicted:
        found = replace(found, verdicts=tuple(map(_without_contradicted, found.verdicts)))
    return replace(found, verdicts=tuple(_final(verdict, material) for verdict in found.verdicts))


def _final(verdict: Verdict, material: Material) -> Verdict:
    if verdict.label is VerdictLabel.UNSUPPORTED and material.context.cut:
        why = "unsupported by the chunks that were shown, and the context is too long to show all"
        return Verdict(claim=verdict.claim, label=VerdictLabel.UNJUDGED, reason=why)
    return replace(verdict, material=verdict.material or verdict.claim.kind == OF_REFERENCE)


def render_verify(given: VerifyInput, code: str) -> str:
    """Render the chunks first, so that calls about the same chunks share a prefix."""
    asked = [("question", [given.question])] if given.question else []
    return fenced(code, [*chunk_sections(given.chunks), *asked, numbered_section("claims", given.claims)])


def verdict_tokens(given: VerifyInput) -> int:
    """Return how many tokens the verdicts on these claims may need."""
    return output_tokens([claim.text for claim in given.claims])


VERIFY = Step(
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
    one_by_one: YesNoVerifier, batched: JsonVerifier, claims: Sequence[Claim]
) -> Verification:
    settings = batched.material.verify
    if settings.first_form is VerifyForm.JSON:
        return await batched.rule(claims)
    try:
        return await one_by_one.rule(claims)
    except JudgeUnable as unable:  # judges remember it, so no later record pays for it
        if settings.form is VerifyForm.LOGPROBS:
            advice = "set the verify form to `json` or `auto`"
            raise JudgeUnable(f"{unable}: {advice}", usage=Usage()) from unable
    return await batched.rule(claims)


async def verify_reference(material: Material) -> Verification:
    """Ask for a verdict on each sentence of the reference."""
    return await verify_claims(RECALL, reference_claims(material.reference), material)


def reference_claims(sentences: Iterable[Sentence]) -> list[Claim]:
    """Return the sentences of a reference as claims."""
    return [
        Claim(index=index, text=sentence.text, kind="reference") for index, sentence in enumerate(sentences)
    ]


RECALL = Step(
    name="recall",
    prompts=("recall", "retrieval", "verify_yes_no"),
    reply=VerifyReply,
    render=render_verify,
    output_tokens=verdict_tokens,
    items="claims",
    run=verify_reference,
)
