"""The chunks of a record as the judge sees them."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.judge_forms import NumberedText
from ragtrace.metrics._evidence import FoldedText, pack_chunks
from ragtrace.model import Chunk


class NumberedContext:
    """The chunks of a record: numbered, packed, and prepared for looking up quotes."""

    def __init__(self, chunks: Sequence[Chunk], *, pack_chars: int, max_packs: int) -> None:
        self._chunks = chunks
        self._folded: dict[int, FoldedText] = {}
        shown = [NumberedText(number=n, text=c.text) for n, c in enumerate(chunks, start=1) if c.text]
        packs = pack_chunks(shown, pack_chars)
        self.packs = packs[:max_packs]
        self.cut = len(packs) > max_packs
        """Whether some packs are not shown."""

    def id_of(self, number: int) -> str:
        """Return the id of the chunk with this number."""
        return self._chunks[number - 1].id

    def find_quote(self, number: int, quote: str) -> str | None:
        """Return the chunk's own text of the quote, if the chunk contains it."""
        if number not in self._folded:
            self._folded[number] = FoldedText(self._chunks[number - 1].text or "")
        return self._folded[number].find(quote)
