"""Answers in JSON that steer no terminal: people read pages with curl."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

from ragtrace.escaping import escaped_json


class JsonPage(JSONResponse):
    """JSON as ever, in which controls and lone surrogates are escaped."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return escaped_json(json.dumps(content, ensure_ascii=False, separators=(",", ":"))).encode()
