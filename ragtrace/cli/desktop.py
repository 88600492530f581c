"""Whether a page that a command opens is seen by somebody."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def has_desktop(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Say whether a browser can be opened here for the person who runs the command."""
    if environ.get("CI") or environ.get("SSH_CONNECTION"):
        return False
    if platform in ("darwin", "win32"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
