"""Steps B, D and T: ask what the chunks say about each claim, or about each sentence of the reference; for
the facts that each chunk states.

There are two forms of B and D. *Batched JSON* asks about many claims at once and gets quotes. *P(Yes)* asks
about one claim per call and gets the probability that the judge says yes: small models are better at it, and
it gives a confidence. With p for P(yes, the chunks support the claim), and q for P(yes, they contradict it),
which is asked about the others, p is the confidence of supported, (1 - p)·q of contradicted, (1 - p)·(1 - q)
of neither. Both forms use the same checks, packs and canary claims.

Step T follows DeepEval's faithfulness: claims are judged against extracted truths, not against the chunks.
Each chunk is asked about by itself, so its truths depend on nothing else and are kept for the next record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from ragtrace.errors import JudgeNonsense, JudgeUnable
from ragtrace.judge_forms import (
    GivenTruths,
    GivenVerdict,
    NumberedText,
    TruthsInput,
    TruthsReply,
    VerdictWord,
    VerifyInput,
    VerifyReply,
    YesNoInput,
    YesNoQuestion,
)
from ragtrace.judge_steps import (
    Prompt,
    TruthMemory,
    TruthSettings,
    TruthVerification,
    Verification,
    VerifyForm,
)
from ragtrace.metrics._evidence import CanaryClaim, CanaryClaims, NumberedContext, check_canaries, pack_chunks
from ragtrace.metrics.asking import (
    ItemReplies,
    Material,
    Step,
    ask_each,
    ask_items,
    batches,
    chunk_sections,
    numbered_section,
    one_a_number,
    output_tokens,
    together,
)
from ragtrace.metrics.fence import Section, fenced
from ragtrace.model import OF_REFERENCE, Chunk, Claim, DecidedBy, Usage, Verdict, VerdictLabel
from ragtrace.ports import JudgeRequest, YesProbability
from ragtrace.sentences import Sentence

FindQuote: TypeAlias = Callable[[int, str], str | None]
"""Looks up a quote in the chunk with this number; returns the chunk's own text."""

_LABELS: Mapping[VerdictWord, VerdictLabel] = {
    "supported": VerdictLabel.SUPPORTED,
    "contradicted": VerdictLabel.CONTRADICTED,
    "not_mentioned": VerdictLabel.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVerdict:
    """The checked verdict of one reply on one claim."""

    label: VerdictLabel
    reason: str | None = None
    chunks: tuple[int, ...] = ()
    """Numbers of shown chunks, the one with the quote first."""
    quote: str | None = None
    """Verbatim text of the first chunk."""
    confidence: float | None = None
    """Probability in [0, 1] that the label is right, if the judge gives one."""
    support: float | None = None
    """Probability in [0, 1] that the chunks support the claim, if the judge gives one."""
    omitted: bool = False
    """The judge left out the verdict without abstaining, or gave an unusable one."""
    decided_by: DecidedBy | None = None
    """Who decided, if the judge is a cascade."""
    material: bool = True
    """Whether a flaw is more than an incidental word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVerdicts:
    """The verdicts on the claims of a record, by number."""

    rulings: Mapping[int, CheckedVerdict]
    rejected: int = 0
    """Number of verdicts with unknown ids."""
    canaries_passed: int = 0

    def without_contradicted(self) -> CheckedVerdicts:
        """Turn *contradicted* into *unsupported*, with the evidence."""
        return replace(self, rulings={number: _folded(ruling) for number, ruling in self.rulings.items()})

    def corrected_by(self, second: CheckedVerdicts) -> CheckedVerdicts:
        """Apply a second look, which changes a claim to supported only with a quote from the chunks."""
        found = {number: ruling for number, ruling in second.rulings.items() if _is_proven(ruling)}
        return CheckedVerdicts(
            rulings={**self.rulings, **found},
            rejected=self.rejected + second.rejected,
            canaries_passed=self.canaries_passed + second.canaries_passed,
        )


def _folded(ruling: CheckedVerdict) -> CheckedVerdict:
    if ruling.label is not VerdictLabel.CONTRADICTED:
        return ruling
    reason = f"{FOLDED}: {ruling.reason}" if ruling.reason else FOLDED
    return replace(ruling, label=VerdictLabel.UNSUPPORTED, reason=reason)


FOLDED: Final = "the judge says contradicted, which by its card it says too often"


def undecided(reason: str) -> CheckedVerdict:
    """Return a missing verdict with its reason."""
    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason)


def omitted(reason: str) -> CheckedVerdict:
    """Return a verdict that the judge left out without abstaining."""
    return CheckedVerdict(label=VerdictLabel.UNJUDGED, reason=reason, omitted=True)


def checked_verdicts(
    replies: ItemReplies[GivenVerdict], *, shown: Collection[int], find_quote: FindQuote
) -> Mapping[int, CheckedVerdict]:
    """Return the verdicts about some chunks, by claim, with the evidence that was found."""
    given_up = {
        number: omitted(reason) if number in replies.omitted else undecided(reason)
        for number, reason in replies.given_up.items()
    }
    found = {number: _ruling(given, shown, find_quote) for number, given in replies.found.items()}
    checked = {**given_up, **found}
    named = {
        number: replace(ruling, decided_by=replies.decided_by[number])
        if number in replies.decided_by
        else ruling
        for number, ruling in checked.items()
    }
    support = replies.support
    return {n: _with_support(ruling, support[n]) if n in support else ruling for n, ruling in named.items()}


def _with_support(ruling: CheckedVerdict, support: float) -> CheckedVerdict:
    """Add the probability of support; a label is right with it, or with the rest, if who gave it decided."""
    if support == ruling.support:
        return ruling
    if ruling.decided_by is DecidedBy.JUDGE:
        return replace(ruling, support=support)
    by_label = {VerdictLabel.SUPPORTED: support, VerdictLabel.UNSUPPORTED: 1 - support}
    return replace(ruling, support=support, confidence=by_label.get(ruling.label))


def combine(rulings: Sequence[CheckedVerdict]) -> CheckedVerdict:
    """Combine the verdicts on one claim from several packs of chunks.

    One supporting pack is enough. ``unsupported`` needs all packs, and has the lowest confidence of them; it
    is incidental if one pack has all but an incidental word. A material contradiction takes precedence, then
    evidence with a quote, then the higher confidence. The probability of support is the
    highest of all packs.
    """
    chosen = _chosen(rulings)
    support = max((ruling.support for ruling in rulings if ruling.support is not None), default=None)
    return chosen if support is None else _with_support(chosen, support)


def _chosen(rulings: Sequence[CheckedVerdict]) -> CheckedVerdict:
    for label in (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED, VerdictLabel.UNJUDGED):
        alike = [ruling for ruling in rulings if ruling.label is label]
        if alike:
            return max(
                alike,
                key=lambda one: (one.material, one.quote is not None, one.omitted, _confidence(one)),
            )
    return min(
        rulings,
        key=lambda one: (one.material, _confidence(one)),
        default=undecided("no chunk with text was shown"),
    )


def _confidence(ruling: CheckedVerdict) -> float:
    return ruling.confidence or 0.0


def _is_proven(ruling: CheckedVerdict) -> bool:
    return ruling.label is VerdictLabel.SUPPORTED and ruling.quote is not None


def _ruling(given: GivenVerdict, shown: Collection[int], find_quote: FindQuote) -> CheckedVerdict:
    reason = given.reason.strip() or None
    if given.label == "not_mentioned":
        return CheckedVerdict(label=VerdictLabel.UNSUPPORTED, reason=reason, material=given.material)
    cited = tuple(number for number in dict.fromkeys(given.chunks) if number in shown)
    holder, quote = _first_holding(given.quote, cited, find_quote)
    return CheckedVerdict(
        label=_LABELS[given.label],
        reason=reason,
        chunks=tuple(sorted(cited, key=lambda number: number != holder)),
        quote=quote,
        material=given.material or given.label == "supported",
    )


def _first_holding(quote: str, cited: Sequence[int], find_quote: FindQuote) -> tuple[int | None, str | None]:
    for number in cited:
        if found := find_quote(number, quote):
            return number, found
    return None, None


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

    async def rule(self, claims: Sequence[NumberedText]) -> CheckedVerdicts:
        """Return a verdict on every claim."""
        found = await self.rule_once(claims, self.material.context.packs)
        doubtful = [claim for claim in claims if found.rulings[claim.number].label in _DOUBTFUL]
        if self.again is None or not doubtful:
            return found
        looking_again = replace(self, prompt=self.again, again=None)
        reordered = [tuple(reversed(pack)) for pack in self.material.context.packs]
        return found.corrected_by(await looking_again.rule_once(doubtful, reordered))

    async def rule_once(self, claims: Sequence[NumberedText], packs: Iterable[Pack]) -> CheckedVerdicts:
        """Return a verdict on every claim, without a second look."""
        size = self.material.limits.claims_per_call
        asked = [(pack, batch) for pack in packs for batch in batches(claims, size)]
        cut_off = ItemReplies[GivenVerdict].cut_off
        replies = await together(ask_items(batch, partial(self._ask, pack), cut_off) for pack, batch in asked)
        checked = [self._checked(pack, reply) for (pack, _), reply in zip(asked, replies, strict=True)]
        given = {c.number: [found[c.number] for found in checked if c.number in found] for c in claims}
        return CheckedVerdicts(
            rulings={number: combine(rulings) for number, rulings in given.items()},
            rejected=sum(reply.rejected for reply in replies),
            canaries_passed=sum(reply.canaries_passed for reply in replies),
        )

    def _checked(self, pack: Pack, replies: ItemReplies[GivenVerdict]) -> Mapping[int, CheckedVerdict]:
        shown = {chunk.number for chunk in pack}
        return checked_verdicts(replies, shown=shown, find_quote=self.material.context.find_quote)

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

    async def rule(self, claims: Sequence[NumberedText]) -> CheckedVerdicts:
        """Return a verdict on every claim.

        Raises:
            JudgeUnable: the judge gives no log-probabilities.
            JudgeError: it gave no usable answer to any question.
            JudgeCompromised: it failed a canary claim.
        """
        heard = await together(self._hear(pack, claims) for pack in self.material.context.packs)
        if claims and heard and not any(pack.support for pack in heard):
            raise JudgeNonsense("the judge answered neither yes nor no to any question", usage=Usage())
        if self.material.verify.second_look:
            doubtful = self._doubtful(claims, heard)
            heard = await together(self._hear_again(pack, doubtful) for pack in heard)
        doubtful = self._doubtful(claims, heard)
        heard = await together(self._hear_against(pack, doubtful) for pack in heard)
        return CheckedVerdicts(
            rulings={
                claim.number: combine([self._ruling(pack, claim) for pack in heard]) for claim in claims
            },
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

    def _ruling(self, heard: _Heard, claim: NumberedText) -> CheckedVerdict:
        p, q = heard.support.get(claim.number), heard.against.get(claim.number)
        if p is None:
            return omitted("the judge answered neither yes nor no")
        alone = {chunk.number for chunk in heard.pack}
        chunks = tuple(alone) if len(alone) == 1 else ()
        if self._is_yes(p):
            return self._supported(heard, claim, p, chunks)
        if q is None:
            # not asked since another pack supports the claim, or not answered
            return omitted("the judge said neither that the chunks contradict the claim nor that they do not")
        if q >= _EVEN:
            return CheckedVerdict(label=VerdictLabel.CONTRADICTED, chunks=chunks, confidence=(1 - p) * q)
        return CheckedVerdict(label=VerdictLabel.UNSUPPORTED, confidence=(1 - p) * (1 - q))

    def _supported(
        self, heard: _Heard, claim: NumberedText, p: float, chunks: tuple[int, ...]
    ) -> CheckedVerdict:
        """Cite the chunk that contains the claim verbatim, if there is one; this form has no quotes."""
        label = VerdictLabel.SUPPORTED
        for chunk in heard.pack:
            if quote := self.material.context.find_quote(chunk.number, claim.text.rstrip(" .")):
                return CheckedVerdict(label=label, chunks=(chunk.number,), quote=quote, confidence=p)
        return CheckedVerdict(label=label, chunks=chunks, confidence=p)


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
        question=material.record.question if step is VERIFY else None,
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
    asked = [("question", [given.question])] if given.question else []
    return fenced(code, [*chunk_sections(given.chunks), *asked, numbered_section("claims", given.claims)])


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
        material=ruling.material or claim.kind == OF_REFERENCE,
    )


async def verify_reference(material: Material) -> Verification:
    """Ask for a verdict on each sentence of the reference."""
    return await verify_claims(RECALL, reference_claims(material.reference), material)


def reference_claims(sentences: Iterable[Sentence]) -> list[Claim]:
    """Return the sentences of a reference as claims."""
    return [
        Claim(index=index, text=sentence.text, kind="reference") for index, sentence in enumerate(sentences)
    ]


RECALL: Final = Step(
    name="recall",
    prompts=("recall", "retrieval", "verify_yes_no"),
    reply=VerifyReply,
    render=render_verify,
    output_tokens=verdict_tokens,
    items="claims",
    run=verify_reference,
)


_MOST_KEPT: Final = 300
_MOST_A_CHUNK: Final = 100


async def verify_by_truths(material: Material, settings: TruthSettings) -> TruthVerification:
    """Ask for the truths of the chunks, and for a verdict on each claim from the truths alone.

    Quotes are looked up in the chunks themselves. A chunk without usable truths is shown as it is.
    """
    claims = (await material.extraction()).claims
    read = await _read(material, settings)
    seen = _TruthContext(material, read)
    verification = await verify_claims(
        VERIFY, claims, replace(material, context=seen), second_look=material.verify.second_look
    )
    truths = [truth for number in sorted(read.truths) for truth in read.truths[number]]
    return TruthVerification(
        verification=verification,
        truths=tuple(truths[:_MOST_KEPT]),
        total=len(truths),
        cut=read.cut,
        unread=len(read.unread),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    truths: Mapping[int, tuple[str, ...]]
    """By chunk number."""
    unread: frozenset[int]
    """The chunks about which the judge gave no usable answer."""
    cut: int
    """How many truths were beyond the limit."""


class _TruthContext(NumberedContext):
    """The truths instead of the chunks, as the judge sees them; quotes are looked up in the chunks."""

    def __init__(self, material: Material, read: _Read) -> None:
        shown = [
            chunk if number in read.unread else replace(chunk, text="\n".join(read.truths.get(number, ())))
            for number, chunk in enumerate(material.record.chunks, start=1)
        ]
        limits = material.limits
        super().__init__(shown, pack_chars=limits.context_chars, max_packs=limits.max_packs)
        self.cut = self.cut or material.context.cut
        self._original = material.context

    def find_quote(self, number: int, quote: str) -> str | None:
        """Return the chunk's own text of the quote, if the chunk contains it."""
        return self._original.find_quote(number, quote)


async def _read(material: Material, settings: TruthSettings) -> _Read:
    chunks = material.record.chunks
    keys = {number: _key(material, chunk, settings) for number, chunk in enumerate(chunks, start=1)}
    known = {number: settings.memory.get(key) for number, key in keys.items()}
    wanted = {number for number in keys if known[number] is None and (chunks[number - 1].text or "").strip()}
    answers = await _asked(material, settings.limit, wanted)
    found: dict[int, list[str]] = {}
    for answer in answers:
        for number, given in answer.found.items():
            found.setdefault(number, []).extend(_worded(given.truths))
    unread = frozenset(number for answer in answers for number in answer.given_up)
    cut = 0
    for number, stated in found.items():
        most = _MOST_A_CHUNK if settings.limit is None else settings.limit
        cut += max(0, len(stated) - most)
        known[number] = tuple(stated[:most])
        if number not in unread and number in wanted:
            settings.memory.put(keys[number], tuple(stated[:most]))
    return _Read(
        truths={number: truths for number, truths in known.items() if truths and number not in unread},
        unread=unread,
        cut=cut,
    )


async def _asked(
    material: Material, limit: int | None, wanted: Iterable[int]
) -> Sequence[ItemReplies[GivenTruths]]:
    chunks, limits = material.record.chunks, material.limits
    shown = [NumberedText(number=n, text=chunks[n - 1].text or "") for n in sorted(wanted)]
    packs = pack_chunks(shown, limits.context_chars)[: limits.max_packs]
    return await together(
        ask_each(
            TRUTHS,
            material,
            one_a_number(pack),
            limits.chunks_per_call,
            lambda some: TruthsInput(limit=limit, chunks=some),
        )
        for pack in packs
    )


def _worded(truths: Iterable[str]) -> list[str]:
    stated = (" ".join(truth.split()) for truth in truths)
    return list(dict.fromkeys(truth for truth in stated if truth))


def _key(material: Material, chunk: Chunk, settings: TruthSettings) -> bytes:
    prompt = material.prompts.named("truths").sha256
    told = (*material.judge.identity.named, prompt, str(settings.limit), chunk.text or "")
    return hashlib.sha256("\0".join(told).encode("utf-8", "replace")).digest()


def _render_truths(given: TruthsInput, code: str) -> str:
    limit: list[Section] = [("limit", [str(given.limit)])] if given.limit is not None else []
    return fenced(code, [*limit, *chunk_sections(given.chunks)])


def _tokens(given: TruthsInput) -> int:
    # facts repeat most of a chunk's words
    return output_tokens([chunk.text * 2 for chunk in given.chunks])


TRUTHS: Final = Step(
    name="truths",
    prompts=("truths",),
    reply=TruthsReply,
    render=_render_truths,
    output_tokens=_tokens,
    items="chunks",
    run=lambda material: verify_by_truths(material, TruthSettings(memory=TruthMemory())),
)
