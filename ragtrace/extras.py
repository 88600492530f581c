"""Build the install command of an extra for this installation: checkout, wheel or index."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

_DISTRIBUTION: Final = "ragtrace-otel"


def install_command(extra: str) -> str:
    """Return the command that adds an extra, from the file of the installation (``direct_url.json``).

    If that is gone, as in an image without sources, the command runs in a checkout of the user's.
    """
    try:
        noted = distribution(_DISTRIBUTION).read_text("direct_url.json")
    except (PackageNotFoundError, OSError):
        noted = "{}"
    if noted is None:
        return f"pip install '{_DISTRIBUTION}[{extra}]'"
    origin = json.loads(noted)
    path = Path(url2pathname(urlsplit(origin.get("url", "")).path))
    if not path.is_absolute() or not path.exists():
        return f"pip install '.[{extra}]' in a checkout of ragtrace"
    editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{path}[{extra}]'"
