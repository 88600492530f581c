"""JSON responses that are safe to print in a terminal, as with curl."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse

from ragtrace.escaping import escaped_json


class JsonPage(JSONResponse):
    """JSON with control characters and lone surrogates escaped."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return escaped_json(json.dumps(content, ensure_ascii=False, separators=(",", ":"))).encode()
