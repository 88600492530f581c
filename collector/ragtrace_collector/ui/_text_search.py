"""Search by words of question or answer: the index has no text, so answers are opened one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from starlette.exceptions import HTTPException

from ragtrace.answers.opened import AnswerGone, OpenedAnswer
from ragtrace.answers.port import AnswerFilter, AnswerPage, SortBy
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import ReadError
from ragtrace_collector.ui.site import Site

OpenOwn = Callable[[AnswerKey], Awaitable[OpenedAnswer]]
"""Opens an answer for a viewer."""

_BATCH: Final = 20
_MOST_OPENED: Final = 200
_MOST_S: Final = 2.0
_MOST_OPENING_S: Final = 5.0


class SearchResult(StrEnum):
    """What a look at the words of an answer gave."""

    FOUND = "found"
    OTHER_WORDS = "other words"
    GONE = "gone"
    """Its content is nowhere any more, so nobody knows."""
    UNREADABLE = "unreadable"
    """Its content could not be read now."""


class TextSearch:
    """One search. It opens a bounded number of answers a page, and says how far it looked."""

    def __init__(
        self, site: Site, open_own: OpenOwn, *, most_opened: int = _MOST_OPENED, most_s: float = _MOST_S
    ) -> None:
        self._site = site
        self._open_own = open_own
        self._most_opened = most_opened
        self._most_s = most_s
        self.opened = 0
        """Number of answers that were looked at."""
        self.gone = 0
        """How many of them have no content any more."""
        self.unread = 0
        """How many of them could not be read."""
        self.problem = ""
        """Why the last of them could not be read."""

    async def page(self, chosen: AnswerFilter, *, sort: SortBy, after: str | None, limit: int) -> AnswerPage:
        """Return a page of answers with these words; cut if the bound was reached first."""
        begun, found, cursor = time.monotonic(), list[AnswerSummary](), after
        without_text = replace(chosen, text=None)
        while True:
            part = await self._site.index.page(without_text, sort=sort, after=cursor, limit=_BATCH)
            found += await self.matching(part.answers, chosen.text or "")
            cursor = part.next
            if cursor is None:
                return AnswerPage(answers=tuple(found), next=None)
            is_spent = self.opened >= self._most_opened or time.monotonic() - begun > self._most_s
            if len(found) >= limit or is_spent:
                last = part.answers[-1].time_ns if part.answers else part.searched_to_ns
                return AnswerPage(
                    answers=tuple(found), next=cursor, is_cut=len(found) < limit, searched_to_ns=last
                )

    async def matching(self, answers: Sequence[AnswerSummary], text: str) -> list[AnswerSummary]:
        """Return the answers with all these words, opened all at the same time."""
        looked = await self.looked_at(answers, text)
        return [answer for answer, found in looked if found is SearchResult.FOUND]

    async def looked_at(
        self, answers: Sequence[AnswerSummary], text: str
    ) -> list[tuple[AnswerSummary, SearchResult]]:
        """Return each answer with what a look at its words gave."""
        found = await asyncio.gather(*(self._look(answer, text) for answer in answers))
        return list(zip(answers, found, strict=True))

    async def _look(self, answer: AnswerSummary, text: str) -> SearchResult:
        self.opened += 1
        try:
            async with asyncio.timeout(_MOST_OPENING_S):
                record = (await self._open_own(answer.key)).record
        except (AnswerGone, HTTPException):
            self.gone += 1
            return SearchResult.GONE
        except (ReadError, TimeoutError) as exc:
            self.unread += 1
            self.problem = str(exc) or f"{self._site.source.name} did not answer in time"
            return SearchResult.UNREADABLE
        content = f"{record.question or ''}\n{record.answer or ''}".casefold()
        has_all = all(word in content for word in text.casefold().split())
        return SearchResult.FOUND if has_all else SearchResult.OTHER_WORDS
