"""``ragtrace ui``: the page of judged answers."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragtrace.cli.options import PlaceOptions, command, option, takes
from ragtrace.cli.render import has_desktop, page_of_trace, print_json, talk
from ragtrace_collector.cli.places import open_place

if TYPE_CHECKING:
    from ragtrace_collector.config import CollectorConfig
    from ragtrace_collector.ui.serving import ReviewPlace


_DEFAULT_LISTEN: Final = "127.0.0.1:4330"


def _address(text: str) -> str:
    if not re.fullmatch(r"[^\s:]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}", text):
        raise ValueError("write HOST:PORT, such as 127.0.0.1:4330")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """How the page is served."""

    listen: str | None = option(
        "--listen",
        metavar="HOST:PORT",
        parse=_address,
        help="Where the page is served; port 0 takes a free one."
        f" [default: `ui.listen`, else {_DEFAULT_LISTEN}]",
    )
    destination: str | None = option(
        "--to",
        metavar="ENDPOINT",
        help="An OTLP endpoint or otlp-file:PATH that gets a span for each review. [default: with --config,"
        " where verdicts go; else nowhere]",
    )
    opens: bool | None = option(
        "--open/--no-open",
        default=None,
        help="Open the page in a browser. [default: if there is a desktop]",
    )
    as_json: bool = option(
        "--json", is_flag=True, help="Print a JSON line with the page's address to stdout when it is ready."
    )


@command()
@takes(place=PlaceOptions, page=PageOptions)
def ui(place: PlaceOptions, page: PageOptions) -> None:
    """Show judged answers on a page: trends, lists, and each answer with its claims and their evidence.

    Without options it reads the default store of a collector on this machine, also while that runs. It
    keeps searching a back end or a file for verdicts; that needs no collector. Ctrl-C ends it.

    \b
    Examples:
      ragtrace ui
      ragtrace ui --config collector.yaml
      ragtrace ui --from jaeger:http://localhost:16686 --since 24h
      ragtrace ui --from report.jsonl
      ragtrace ui --from store:ragtrace.db --set ui.traces=tempo:http://h:3200
    """
    import asyncio

    asyncio.run(_run(place, page))


async def _run(place: PlaceOptions, page: PageOptions) -> None:
    from ragtrace.answers.port import TrafficScope
    from ragtrace.process import SystemClock
    from ragtrace_collector.operations.signals import Signals
    from ragtrace_collector.ui.serving import configured_app, serve_until
    from ragtrace_collector.web.server import open_auth, open_socket

    clock = SystemClock()
    config = _configured(place, page)
    auth = open_auth(config, clock)
    signals = Signals(longest_stop_s=10.0)
    with signals.handled():
        async with (
            open_place(config, place, clock) as found,
            _opened_reviews(config, place, page) as reviews,
        ):
            await found.place.index.newest_ns(TrafficScope())  # a store that cannot be read is told at once
            app = configured_app(config, found.place, auth=auth, clock=clock, reviews=reviews)
            listening = open_socket(config.ui.listen or "", key="--listen")
            _announce(config, listening.getsockname()[1], page, is_secure=bool(auth.certificate))
            await serve_until(signals.stop, app, listening, certificate=auth.certificate)


def _opened_reviews(
    config: CollectorConfig, place: PlaceOptions, page: PageOptions
) -> AbstractAsyncContextManager[ReviewPlace]:
    from ragtrace.backends import open_sink
    from ragtrace.files import make_state_folder, state_folder
    from ragtrace_collector.service.page import REVIEWS_NAME, open_configured_reviews
    from ragtrace_collector.ui.serving import open_reviews

    if place.config.path and not page.destination:
        return open_configured_reviews(config)
    if not config.ui.reviews:
        make_state_folder()
    path = config.ui.reviews or state_folder() / REVIEWS_NAME
    sinks = {page.destination: open_sink(page.destination)} if page.destination else {}
    return open_reviews(path, sinks=sinks, content=config.attach.content)


def _configured(place: PlaceOptions, page: PageOptions) -> CollectorConfig:
    """Return the configuration as if the page alone listened."""
    config = place.config.read(only=("extract", "store", "index", "ui", "receive", "attach"))
    listen = page.listen or config.ui.listen or _DEFAULT_LISTEN
    own = page_of_trace(config.ui.traces or place.source or "")
    links = {**({"Jaeger": own} if own else {}), **config.ui.links}
    ui = config.ui.model_copy(update={"listen": listen, "links": links})
    receive = config.receive.model_copy(update={"grpc": None, "http": "127.0.0.1:0"})
    telemetry = config.telemetry.model_copy(update={"listen": None})
    return config.model_copy(update={"receive": receive, "telemetry": telemetry, "ui": ui})


def _announce(config: CollectorConfig, port: int, page: PageOptions, *, is_secure: bool) -> None:
    from ragtrace_collector.service.page import url_of_page

    url = url_of_page(config, port, is_secure=is_secure)
    talk(f"The page is at {url} (Ctrl-C ends it)")
    if page.as_json:
        print_json({"event": "ready", "url": url, "port": port})
    if page.opens or (page.opens is None and sys.stderr.isatty() and has_desktop(os.environ)):
        import webbrowser

        webbrowser.open(url)
