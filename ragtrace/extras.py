"""Build the install command of an extra for this installation: checkout, wheel, repository or index."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

_DISTRIBUTION: Final = "ragtrace-otel"


def install_command(extra: str) -> str:
    """Return the command that adds an extra, from the source of the installation (``direct_url.json``).

    If that source is gone, as in an image without sources, the command runs in a checkout of the user's.
    """
    try:
        noted = distribution(_DISTRIBUTION).read_text("direct_url.json")
        origin = json.loads(noted) if noted else None
    except (PackageNotFoundError, OSError, ValueError):
        return _from_a_checkout(extra)
    if origin is None:
        return _command(f"{_DISTRIBUTION}[{extra}]")
    return _from_origin(origin, extra)


def _from_origin(origin: dict[str, Any], extra: str) -> str:
    url = str(origin.get("url", ""))
    if not url.startswith("file:"):
        version_control = origin.get("vcs_info", {}).get("vcs")
        address = f"{version_control}+{url}" if version_control else url
        return _command(f"{_DISTRIBUTION}[{extra}] @ {address}")
    path = Path(url2pathname(urlsplit(url).path))
    if not path.exists():
        return _from_a_checkout(extra)
    editable = origin.get("dir_info", {}).get("editable") is True
    return _command(f"{path}[{extra}]", "--editable" if editable else "")


def _from_a_checkout(extra: str) -> str:
    return f"{_command(f'.[{extra}]')} in a checkout of ragtrace"


def _command(what: str, option: str = "") -> str:
    return " ".join(filter(None, ["pip install", option, shlex.quote(what)]))
