"""Step T: ask for the facts that each chunk states, and judge claims against those facts.

It follows DeepEval's faithfulness: claims are judged against extracted truths, not against the chunks. Each
chunk is asked about by itself, so its truths depend on nothing else and are kept for the next record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ragtrace.judge_forms import GivenTruths, NumberedText, TruthsInput, TruthsReply
from ragtrace.judge_steps import TruthMemory, TruthSettings, TruthVerification
from ragtrace.metrics._evidence import NumberedContext, pack_chunks
from ragtrace.metrics.asking import ItemReplies, ask_items, batches, output_tokens, together
from ragtrace.metrics.fence import Section, fenced
from ragtrace.metrics.steps.step import Material, Step, chunk_sections, one_a_number
from ragtrace.metrics.steps.verify import VERIFY, verify_claims
from ragtrace.model import Chunk

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
    calls = [batch for pack in packs for batch in batches(one_a_number(pack), limits.chunks_per_call)]
    ask, cut_off = partial(_ask, material, limit), ItemReplies[GivenTruths].cut_off
    return await together(ask_items(call, ask, cut_off) for call in calls)


async def _ask(
    material: Material,
    limit: int | None,
    chunks: Sequence[NumberedText],
    answered: Sequence[NumberedText],
    again: bool,
) -> ItemReplies[GivenTruths]:
    given = TruthsInput(limit=limit, chunks=tuple(chunks))
    reply = await material.judge.ask(TRUTHS.request(given, material, again=again))
    listed = ((entry.id, entry) for entry in reply.value.chunks)
    return ItemReplies.check(listed, asked=chunks, abstained=reply.abstained, notes=reply.notes)


def _worded(truths: Iterable[str]) -> list[str]:
    stated = (" ".join(truth.split()) for truth in truths)
    return list(dict.fromkeys(truth for truth in stated if truth))


def _key(material: Material, chunk: Chunk, settings: TruthSettings) -> bytes:
    prompt = material.prompts.named("truths").sha256
    told = (*material.judge.identity.named, prompt, str(settings.limit), chunk.text or "")
    return hashlib.sha256("\0".join(told).encode("utf-8", "replace")).digest()


def _render(given: TruthsInput, code: str) -> str:
    limit: list[Section] = [("limit", [str(given.limit)])] if given.limit is not None else []
    return fenced(code, [*limit, *chunk_sections(given.chunks)])


def _tokens(given: TruthsInput) -> int:
    # facts repeat most of a chunk's words
    return output_tokens([chunk.text * 2 for chunk in given.chunks])


TRUTHS: Final = Step(
    name="truths",
    prompts=("truths",),
    reply=TruthsReply,
    render=_render,
    output_tokens=_tokens,
    items="chunks",
    run=lambda material: verify_by_truths(material, TruthSettings(memory=TruthMemory())),
)
