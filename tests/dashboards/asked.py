"""What the committed dashboards ask, read from their JSON as Grafana reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DASHBOARDS: Final = Path(__file__).parents[2] / "examples" / "deploy" / "compose" / "grafana" / "dashboards"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One query of one panel."""

    panel: str
    source: str
    """``prometheus``, ``tempo`` or ``jaeger``."""
    asked: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.source}: {self.panel}, {self.asked.get('legendFormat') or self.asked['refId']}"


def targets_in(dashboard: Json) -> Iterator[Target]:
    for panel in dashboard["panels"]:
        for asked in panel.get("targets", ()):
            yield Target(panel=panel["title"], source=asked["datasource"]["type"], asked=asked)


def metrics_in(expression: str) -> list[str]:
    """Return the names of ragtrace's metrics that PromQL reads, in their order."""
    without_labels = re.sub(r"by \(.*?\)", "", expression)
    return re.findall(r"\bragtrace_\w+(?=[{\[)])", without_labels)


def variables_in(dashboard: Json) -> list[Json]:
    return [variable for variable in dashboard["templating"]["list"] if variable["type"] == "query"]


def filled(query: str, values: Mapping[str, str]) -> str:
    """Put values in the place of variables, as Grafana does.

    Raises:
        KeyError: a variable has no value.
    """
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], query)


def read(name: str) -> Json:
    found: Json = json.loads((DASHBOARDS / name).read_text("utf-8"))
    return found
