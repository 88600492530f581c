"""What a reload exchanges: the configuration in force, and what follows from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.judge.evaluator import Evaluator
from ragtrace_collector.sampling import Sampler


class SharedEvaluator:
    """A judging in office. Once retired, it is closed when the last evaluation by it has ended."""

    def __init__(self, evaluator: Evaluator, opened: AsyncExitStack) -> None:
        self.evaluator = evaluator
        self._opened = opened
        self._evaluations = 0
        self._is_retired = False

    @classmethod
    async def begin(cls, opening: AbstractAsyncContextManager[Evaluator]) -> SharedEvaluator:
        """Open a judging.

        Raises:
            ConfigError: it cannot be used.
        """
        async with AsyncExitStack() as opened:
            evaluator = await opened.enter_async_context(opening)
            return cls(evaluator, opened.pop_all())

    @asynccontextmanager
    async def evaluation(self) -> AsyncIterator[None]:
        """Keep it open until the block ends."""
        self._evaluations += 1
        try:
            yield
        finally:
            self._evaluations -= 1
            await self._close_if_unused()

    async def retire(self) -> None:
        """Close it as soon as nobody needs it any more."""
        self._is_retired = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self._is_retired and not self._evaluations:
            await self._opened.aclose()


@dataclass(slots=True, kw_only=True)
class LiveConfig:
    """What is decided by now."""

    config: CollectorConfig
    shared_evaluator: SharedEvaluator
    sampler: Sampler

    @property
    def is_judge_away(self) -> bool:
        """Whether nobody may be asked now."""
        return self.shared_evaluator.evaluator.now.closed() is not None
