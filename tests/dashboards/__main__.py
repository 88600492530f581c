"""Write the dashboards of quality: ``python -m tests.dashboards``."""

from __future__ import annotations

from pathlib import Path

from tests.dashboards.asked import DASHBOARDS
from tests.dashboards.quality import SOURCES, file_name, json_of

for source in SOURCES:
    file = DASHBOARDS / file_name(source)
    file.write_text(json_of(source), encoding="utf-8")
    print(f"wrote {file.relative_to(Path.cwd())}")
