"""Ancestors in span trees of any shape; a query over many spans visits each span once.

The sender controls the shape of the tree. So nothing here recurses or walks a path twice, and cycles end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping


class Lineage:
    """The parents of spans. A missing parent ends a path, and so does a cycle."""

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        self._parents = parents
        self._tops: dict[str, str] = {}

    def line(self, span_id: str) -> Iterator[str]:
        """Yield the span and its ancestors, the nearest first. For many spans, use the other methods."""
        walked: set[str] = set()
        above: str | None = span_id
        while above is not None and above not in walked:
            walked.add(above)
            yield above
            above = self._parents.get(above)

    def nearest_above(self, of: Iterable[str], ids: Collection[str]) -> Mapping[str, str]:
        """Map each span in ``of`` to its nearest ancestor in ``ids``, if it has one."""
        nearest: dict[str, str | None] = {}
        for span_id in of if ids else ():
            line = []
            above = span_id
            while above not in nearest and (parent := self._parents.get(above)) is not None:
                nearest[above] = None  # each path is walked once, cycles too
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
        """Return the topmost ancestor, or the span itself; in a cycle, the span with the smallest id."""
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
