"""docs/grafana.md: every panel of the committed dashboards, with what it reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.dashboards.asked import metrics_in, read
from tests.dashboards.quality import SOURCES, file_name

PAGE = Path(__file__).parents[2] / "docs" / "grafana.md"
TABLE = re.compile(r"(?<= writes it -->\n).*?(?=<!-- end of the panels -->)", re.DOTALL)
REGENERATE = "REGENERATE_GOLDEN"


def table() -> str:
    """Return a row a panel; one that is not on both dashboards says where it is."""
    shown: dict[tuple[str, str], list[str]] = {}
    for source in SOURCES:
        for row in _rows(read(file_name(source))):
            shown.setdefault(row, []).append(source.title)
    lines = [
        f"| {panel}{'' if len(on) == len(SOURCES) else f' ({on[0]})'} | {said} |\n"
        for (panel, said), on in shown.items()
    ]
    return "".join(["| panel | what it shows | what it reads |\n", "| --- | --- | --- |\n", *lines])


def _rows(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        said = panel["description"].replace("$metric", "the metric").replace("$window", "window")
        title = panel["title"].replace("$metric", "the metric")
        yield title[0].upper() + title[1:], f"{said} | {_read(panel)}"


def _read(panel: Mapping[str, Any]) -> str:
    names: dict[str, None] = {}
    for target in panel.get("targets", ()):
        if "expr" in target:
            found = metrics_in(target["expr"])
        elif "query" in target:
            found = [target["query"].split(" && (")[0].removeprefix("{ ")]
        else:
            found = [f"{target['operation']}, {target['tags']}"]
        names |= dict.fromkeys(found)
    return ", ".join(f"`{name}`" for name in names)


def test_the_page_has_every_panel() -> None:
    written = TABLE.sub(lambda _: table(), PAGE.read_text("utf-8"))
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        PAGE.write_text(written, "utf-8")
    assert PAGE.read_text("utf-8") == written, f"run once with {REGENERATE}=1 if this is meant"
