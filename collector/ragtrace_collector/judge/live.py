"""The live configuration: what a reload exchanges, as one immutable value."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.extract import ExtractRules
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.judge.evaluator import GuardedEvaluator
from ragtrace_collector.sampling import Sampler


class SharedEvaluator:
    """An evaluator that several evaluations use. After `retire`, the last of them closes it."""

    def __init__(self, guarded: GuardedEvaluator, opened: AsyncExitStack) -> None:
        self.guarded = guarded
        self._opened = opened
        self._evaluations = 0
        self._is_retired = False

    @classmethod
    async def begin(cls, opening: AbstractAsyncContextManager[GuardedEvaluator]) -> SharedEvaluator:
        """Open an evaluator.

        Raises:
            ConfigError: it cannot be used.
        """
        async with AsyncExitStack() as opened:
            guarded = await opened.enter_async_context(opening)
            return cls(guarded, opened.pop_all())

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
        """Close it when no evaluation uses it any more."""
        self._is_retired = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self._is_retired and not self._evaluations:
            await self._opened.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A snapshot: one configuration, and what was opened or read from it."""

    config: CollectorConfig
    shared_evaluator: SharedEvaluator
    sampler: Sampler
    rules: ExtractRules
    attach: AttachOptions

    @classmethod
    def of(cls, config: CollectorConfig, evaluator: SharedEvaluator, sampler: Sampler) -> Live:
        """Put a snapshot together.

        Raises:
            ConfigError: a rule of `extract` cannot be used.
        """
        return cls(
            config=config,
            shared_evaluator=evaluator,
            sampler=sampler,
            rules=config.extract.opened(),
            attach=attach_options_of(config),
        )

    @property
    def is_judge_unavailable(self) -> bool:
        """Whether no judge may be asked now."""
        return self.shared_evaluator.guarded.closed() is not None


class LiveConfig:
    """Holds the current snapshot. A stage reads ``now`` once for each item: a reload never splits an item."""

    def __init__(self, first: Live) -> None:
        self.now = first

    def exchange(self, live: Live) -> Live:
        """Make another snapshot the current one, and return the one before."""
        before, self.now = self.now, live
        return before


def attach_options_of(config: CollectorConfig) -> AttachOptions:
    """Return the content and the time of carriers, with all that any of the back ends reads."""
    attach = config.attach
    return AttachOptions(
        carrier_time=attach.carrier_time,
        content=attach.content,
        openinference=any(export.reads_openinference for export in config.export),
        page_url=config.ui.public_url or "",
    )
