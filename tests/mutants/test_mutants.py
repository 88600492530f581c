"""Each mutant fits the product: `python -m tests.mutants` sees that its test notices."""

from __future__ import annotations

from tests.mutants.catalogue import CATALOGUE
from tests.sharing import ROOT


def test_each_mutant_applies_and_its_test_is_there() -> None:
    for each in CATALOGUE:
        compile(each.applied_to(ROOT), each.file, "exec")
        file, _, name = each.test.partition("[")[0].partition("::")
        assert f"def {name}" in (ROOT / file).read_text("utf-8"), each.test
