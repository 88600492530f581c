"""Print the coverage of every estimate: ``python -m tests.statistics``."""

from __future__ import annotations

from tests.statistics.coverage import ESTIMATES, WEEKS, WRONG, coverage_of
from tests.statistics.labeled import CHEAP, RATES, SETS, TRUE, sampled, saving
from tests.statistics.weeks import weeks

if __name__ == "__main__":
    sizes = [int(week.is_judged.sum()) for week in weeks(20, seed=0)]
    print(f"{WEEKS:,} weeks, about {sum(sizes) // len(sizes)} judged answers each; nominal: 95 %")
    for name, (estimate, target) in {**ESTIMATES, **WRONG}.items():
        found = coverage_of(estimate, target())
        print(
            f"{name:<46} {found.hits:>5}/{found.weeks} = {found.share:6.1%}   width {found.width:.3f}",
            flush=True,
        )
    for name in SETS:
        for true in TRUE:
            for cheap in CHEAP:
                saved = saving(name, cheap=cheap, true=true)
                print(
                    f"RAGTruth {name}, {true} by {cheap}: {saved.labeled:.0f} of {saved.answers} labeled,"
                    f" holds the truth {saved.covered:.1%}, {saved.narrower:.1%} narrower"
                )
    for name in SETS:
        for true in TRUE:
            for called, plan in RATES.items():
                found_of = sampled(name, true=true, plan=plan)
                print(
                    f"RAGTruth {name}, {true}, rates {called}: {found_of.judged:.1%} judged,"
                    f" {found_of.flawed:.0%} of them flawed (of all {found_of.flawed_of_all:.0%}),"
                    f" joined interval {found_of.narrower:.1%} narrower, holds the truth"
                    f" {found_of.covered:.1%}",
                    flush=True,
                )
