"""docs/signals.md: every state, metric and panel of the code. ``REGENERATE_GOLDEN=1`` writes it again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opentelemetry.metrics import Observation
from prometheus_client.parser import text_string_to_metric_families

from ragtrace_collector.ledger import vocabulary
from ragtrace_collector.operations.metrics import METRICS, Readings, SelfMetrics
from ragtrace_collector.telemetry.scores import SCORE_METRICS
from tests.dashboards import QUALITY, metrics_in, read

PAGE = Path(__file__).parents[2] / "docs" / "signals.md"
REGENERATE = "REGENERATE_GOLDEN"


def assert_written(name: str, *rows: str) -> None:
    part = re.compile(rf"(?<=<!-- {name}: begin -->\n).*(?=<!-- {name}: end -->)", re.DOTALL)
    table = "".join(f"| {row} |\n" for row in rows)
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        PAGE.write_text(part.sub(lambda _: table, PAGE.read_text("utf-8")), "utf-8")
    assert part.findall(PAGE.read_text("utf-8")) == [table], f"run once with {REGENERATE}=1 if this is meant"


def test_the_page_has_every_state_and_reason_with_what_to_do() -> None:
    rows = (f"`{name}` | {found.meaning} | {found.advice}" for name, found in vocabulary().items())
    assert_written("states", "state | meaning | what to do", "--- | --- | ---", *rows)


async def test_the_page_has_every_metric_under_the_name_that_a_scrape_has() -> None:
    async def everything() -> Readings:
        return {metric.name: (Observation(1),) for metric in METRICS}

    metrics = SelfMetrics(everything, push_to=None)
    page, _ = await metrics.page("")
    await metrics.aclose()
    own = [f for f in text_string_to_metric_families(page.decode()) if f.name.startswith("ragtrace_")]
    rows = [f"`{family.samples[0].name}` | {family.documentation}" for family in own]
    counters = sum(metric.is_counter for metric in METRICS)
    assert sum("_total`" in row for row in rows) == counters
    assert_written("metrics", "metric | what it says", "--- | ---", *rows)


def test_the_page_has_every_score_metric_with_its_attributes_besides_the_dimensions() -> None:
    rows = (
        f"`{metric.name}` | {'histogram' if metric.is_histogram else 'counter'} | `{metric.unit}`"
        f" | {metric.description} |"
        f" {', '.join(f'`{name}`' for name in metric.attributes)}"
        for metric in SCORE_METRICS
    )
    head = ("metric | kind | unit | what it says | also by", "--- | --- | --- | --- | ---")
    assert_written("scores", *head, *rows)


def panels() -> Iterator[str]:
    """Return a row a panel; one that is not on both dashboards says where it is."""
    shown: dict[tuple[str, str], list[str]] = {}
    for file, traces_in in QUALITY.items():
        for row in _rows(read(file)):
            shown.setdefault(row, []).append(traces_in)
    for (panel, said), on in shown.items():
        yield f"{panel}{'' if len(on) == len(QUALITY) else f' ({on[0]})'} | {said}"


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


def test_the_page_has_every_panel_of_the_dashboards() -> None:
    assert_written("panels", "panel | what it shows | what it reads", "--- | --- | ---", *panels())
