"""Templates: every value is escaped, and nothing inline runs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse

from ragtrace import __version__
from ragtrace_collector.ui.phrases import FILTERS
from ragtrace_collector.ui.site import site_of, viewer_of

if TYPE_CHECKING:
    from jinja2 import Environment


def render(request: Request, template: str, *, status_code: int = 200, **values: object) -> HTMLResponse:
    """Render a page; the template also gets ``request``, ``site`` and ``viewer``."""
    text = (
        environment()
        .get_template(template)
        .render(request=request, site=site_of(request), viewer=viewer_of(request), **values)
    )
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status_code)


@cache
def environment() -> Environment:
    """Return the templates' environment: undefined names raise, values are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("ragtrace_collector.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    made.globals["ragtrace_version"] = __version__
    return made
