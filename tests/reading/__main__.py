"""Print how well each case is read: ``python -m tests.reading [NAME…]``."""

from __future__ import annotations

import sys
from collections import Counter

from tests.reading.cases import grade, read, reported
from tests.reading.kinds import held
from tests.reading.unseen import unseen
from tests.reading.unseen2 import unseen2


def main() -> None:
    """Print a line for each case and the counts."""
    counts: dict[str, Counter[str]] = {}
    cases = (*reported(), *held(), *unseen(), *unseen2())
    for case in cases:
        if sys.argv[1:] and case.name not in sys.argv[1:] and case.kind not in sys.argv[1:]:
            continue
        records = read(case)
        found = grade(case, records)
        counts.setdefault(case.kind, Counter())[found] += 1
        if found != "right" or sys.argv[1:]:
            print(f"{found:7} {case.kind:12} {case.name}")
            for each in records if sys.argv[1:] else ():
                print(each)
    total: Counter[str] = sum(counts.values(), Counter())
    for kind, each in [*counts.items(), ("all", total)]:
        print(kind, dict(each))


if __name__ == "__main__":
    main()
