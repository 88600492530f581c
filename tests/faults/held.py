"""A scene in hold mode: the back end must get every span in one version, and every score once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace import semconv
from tests.faults.scene import Ground, Scene, Tally
from tests.faults.servers import BackEnd
from tests.rag_spans import rag_trace

_SCORE: Final = f"{semconv.SCORE_PREFIX}faithfulness"


class HeldScene(Scene):
    """A collector between the application and its back end."""

    def __init__(self, ground: Ground) -> None:
        self._receiver = BackEnd()
        super().__init__(ground, back_end=self._receiver)
        (export,) = self.config["export"]
        self.config = {
            **self.config,
            "attach": {"mode": "hold", "hold_timeout": "1s"},
            "export": [{**export, "forward": True}],
        }

    def stop(self) -> None:
        """Let the collector shut down in order, and its back end after it."""
        super().stop()
        self._receiver.close()

    def account(self) -> Tally:
        """Count original spans, too: each must come, and never in two versions."""
        tally = super().account()
        versions = self._versions()
        doubled = sum(number - 1 for number in versions if number)
        return tally + Tally(lost=versions.count(0), doubled=doubled, unaccounted=0)

    def _versions(self) -> list[int]:
        return [
            len(self._receiver.spans.get((span.trace_id, span.span_id), ()))
            for number in self._acknowledged
            for span in rag_trace(number)
        ]

    def _is_under_way(self) -> bool:
        # Beside a writer that was killed within a lease, one that stops leaves held spans in the store.
        return super()._is_under_way() or 0 in self._versions()

    def _found(self) -> Mapping[tuple[str, str], set[str]]:
        """Return what tells a score: a carrier, or the answer span itself."""
        told = {
            ids: {content for content in contents if _SCORE in content}
            for ids, contents in list(self._receiver.spans.items())
        }
        return {ids: contents for ids, contents in told.items() if contents}
