"""Pages: self-contained HTML files from templates with a common frame and style sheet."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

from ragtrace import __version__

if TYPE_CHECKING:
    from jinja2 import Template


def open_template(name: str, **filters: Callable[..., str]) -> Template:
    """Open a template by its path in the package; values are escaped.

    Raises:
        ModuleNotFoundError: Jinja2 is not installed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    style = files("ragtrace.reports").joinpath("page.css").read_text("utf-8")
    environment = Environment(
        loader=PackageLoader("ragtrace", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    environment.globals |= {
        "style": style,
        "style_sha256": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "ragtrace_version": __version__,
    }
    return environment.get_template(name)
