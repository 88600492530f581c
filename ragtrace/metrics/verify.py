"""Step B: ask what the chunks say about each claim, and check the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragtrace.errors import JudgeCutOff, JudgeNonsense
from ragtrace.metrics.asking import batches, halves, output_tokens, together
from ragtrace.metrics.evidence import FoldedText, pack_chunks
from ragtrace.metrics.forms import NumberedText, VerifyInput, VerifyReply
from ragtrace.metrics.prompt import Prompt, render_verify
from ragtrace.metrics.verdicts import CheckedReply, check_reply, combine, undecided
from ragtrace.metrics.verify_settings import VerifySettings
from ragtrace.model import Chunk, Claim, Verdict, VerdictLabel
from ragtrace.ports import Judge, JudgeRequest

__all__ = ["Context", "Verification", "verify_claims"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What step B found."""

    verdicts: tuple[Verdict, ...]
    """One for each claim, in their order."""
    rejected: int
    """Verdicts under ids that do not exist."""

    @property
    def quotes_unverified(self) -> int:
        """How many verdicts should stand on a quote, and its text was not found."""
        evident = (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED)
        return sum(v.label in evident and not v.quote_verified for v in self.verdicts)


class Context:
    """The chunks of a record as the judge gets them: numbered, packed, and ready for looking up quotes."""

    def __init__(self, chunks: Sequence[Chunk], *, pack_chars: int, max_packs: int) -> None:
        self._chunks = chunks
        self._folded: dict[int, FoldedText] = {}
        shown = [NumberedText(number=n, text=c.text) for n, c in enumerate(chunks, start=1) if c.text]
        packs = pack_chunks(shown, pack_chars)
        self.packs = packs[:max_packs]
        self.cut = len(packs) > max_packs
        """Whether there were more packs than are shown."""

    def id_of(self, number: int) -> str:
        """Return the id of the chunk with this number."""
        return self._chunks[number - 1].id

    def find_quote(self, number: int, quote: str) -> str | None:
        """Return the chunk's own text where the quote is found in it."""
        if number not in self._folded:
            self._folded[number] = FoldedText(self._chunks[number - 1].text or "")
        return self._folded[number].find(quote)


async def verify_claims(
    claims: Sequence[Claim],
    context: Context,
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
    """Ask for a verdict on each claim; ``step`` names the requests.

    Raises:
        JudgeError: the judge gave no usable answer.
    """
    asking = _Asking(step=step, context=context, judge=judge, prompt=prompt, fence_code=fence_code)
    numbered = [NumberedText(number=claim.index + 1, text=claim.text) for claim in claims]
    replies = await together(
        asking.rule(pack, batch) for pack in context.packs for batch in batches(numbered, claims_per_call)
    )
    return Verification(
        verdicts=tuple(_verdict(claim, replies, context) for claim in claims),
        rejected=sum(reply.rejected for reply in replies),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """What stays the same from call to call."""

    step: str
    context: Context
    judge: Judge
    prompt: Prompt
    fence_code: str

    async def rule(self, pack: Sequence[NumberedText], claims: Sequence[NumberedText]) -> CheckedReply:
        """Get a ruling on every claim; ask once more for those that came missing or twice."""
        first = await self._ask(pack, claims)
        if not first.unanswered:
            return first
        again = [claim for claim in claims if claim.number in first.unanswered]
        try:
            second = await self._ask(pack, again)
        except JudgeNonsense:
            return first.settled("asked again, the judge gave no usable reply")
        return first.joined(second).settled("the judge gave no verdict, or several, and asked again as well")

    async def _ask(self, pack: Sequence[NumberedText], claims: Sequence[NumberedText]) -> CheckedReply:
        try:
            reply = await self.judge.ask(self._request(pack, claims))
        except JudgeCutOff:
            if len(claims) == 1:
                raise
            return await self._ask_in_halves(pack, claims)
        return check_reply(
            reply.value,
            asked=[claim.number for claim in claims],
            abstained={number: reply.notes.get(number, "the judge abstained") for number in reply.abstained},
            shown={chunk.number for chunk in pack},
            find_quote=self.context.find_quote,
        )

    async def _ask_in_halves(
        self, pack: Sequence[NumberedText], claims: Sequence[NumberedText]
    ) -> CheckedReply:
        replies: list[CheckedReply] = []
        for half in halves(claims):
            try:
                replies.append(await self._ask(pack, half))
            except JudgeCutOff as exc:
                cut_off = exc
        if not replies:
            raise cut_off
        answered = replies[0].joined(replies[1]) if len(replies) == 2 else replies[0]
        lost = {claim.number: undecided("the judge's reply was cut off") for claim in claims}
        return CheckedReply(
            rulings={**lost, **answered.rulings}, unanswered=answered.unanswered, rejected=answered.rejected
        )

    def _request(
        self, pack: Sequence[NumberedText], claims: Sequence[NumberedText]
    ) -> JudgeRequest[VerifyReply]:
        given = VerifyInput(chunks=tuple(pack), claims=tuple(claims))
        return JudgeRequest(
            step=self.step,
            system=self.prompt.text,
            user=render_verify(given, self.fence_code),
            reply_type=VerifyReply,
            inputs=given,
            max_output_tokens=output_tokens([claim.text for claim in claims]),
        )


def _verdict(claim: Claim, replies: Sequence[CheckedReply], context: Context) -> Verdict:
    number = claim.index + 1
    ruling = combine([reply.rulings[number] for reply in replies if number in reply.rulings])
    if ruling.label is VerdictLabel.UNSUPPORTED and context.cut:
        ruling = undecided(
            "not mentioned in the chunks that were shown, and the context is too long to show all"
        )
    return Verdict(
        claim=claim,
        label=ruling.label,
        reason=ruling.reason,
        chunk_ids=tuple(dict.fromkeys(context.id_of(number) for number in ruling.chunks)),
        quote=ruling.quote,
        quote_verified=ruling.quote is not None,
    )
