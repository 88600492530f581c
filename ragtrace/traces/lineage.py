"""Who hangs under whom, in whatever shape: what is asked of many spans visits each span once.

Whoever sends spans chooses their shape. So nothing here recurses, no span's line is walked again for its
neighbor, and cycles end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping


class Lineage:
    """The parents of spans. Those that were not seen end a line, and so do cycles."""

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        self._parents = parents
        self._tops: dict[str, str] = {}

    def line(self, span_id: str) -> Iterator[str]:
        """Yield the span and those above it, the nearest first. For one span: of many, ask the others."""
        walked: set[str] = set()
        above: str | None = span_id
        while above is not None and above not in walked:
            walked.add(above)
            yield above
            above = self._parents.get(above)

    def nearest_above(self, of: Iterable[str], ids: Collection[str]) -> Mapping[str, str]:
        """Map each span of ``of`` that has one of ``ids`` above it to the nearest one."""
        nearest: dict[str, str | None] = {}
        for span_id in of if ids else ():
            line = []
            above = span_id
            while above not in nearest and (parent := self._parents.get(above)) is not None:
                nearest[above] = None  # walked once, cycles too
                line.append(above)
                above = parent
                if above in ids:
                    break
            found = above if above in ids else nearest.get(above)
            nearest.update(dict.fromkeys(line, found))
        return {
            span_id: above for span_id, above in nearest.items() if above is not None and above != span_id
        }

    def all_above(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of the spans above any of these."""
        above: set[str] = set()
        for span_id in ids:
            parent = self._parents.get(span_id)
            while parent is not None and parent not in above:
                above.add(parent)
                parent = self._parents.get(parent)
        return frozenset(above)

    def top(self, span_id: str) -> str:
        """Return the topmost span above this one, or itself; of a cycle, the one with the least id."""
        line: dict[str, None] = {}
        above = span_id
        while above not in self._tops and above not in line:
            line[above] = None
            above = self._parents.get(above) or above
        if above in self._tops:
            top = self._tops[above]
        else:
            walked = list(line)
            top = min(walked[walked.index(above) :])
        self._tops.update(dict.fromkeys(line, top))
        return top
