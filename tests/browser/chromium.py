"""A real browser that fails a test if a page leaves loopback, logs an error, or breaks its policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
_AXE = Path(__file__).parent / "axe" / "axe.min.js"
_LOOPBACK = frozenset({"127.0.0.1", "localhost"})
_GRAVE = frozenset({"serious", "critical"})
_POLICY = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


@contextmanager
def running_chromium(program: Path) -> Iterator[Browser]:
    """Run a browser without a window. Until it ends, no asyncio loop can run in this thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(program), args=[*_FLAGS])
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True, kw_only=True)
class Screen:
    """How a person looks at a page."""

    name: str
    width: int = 1280
    height: int = 900
    is_dark: bool = False
    has_scripts: bool = True


WIDE = Screen(name="wide")
NARROW = Screen(name="360 px, dark", width=360, height=740, is_dark=True)
WITHOUT_SCRIPTS = Screen(name="without scripts", has_scripts=False)


@dataclass
class Watched:
    """What went wrong in a browser's pages."""

    faults: list[str] = field(default_factory=list)
    allowed: Sequence[str] = ()
    """Parts of faults that the test expects, such as a status."""

    def watch(self, context: BrowserContext) -> None:
        """Note the faults of all pages of a context, and stop requests to anywhere else."""
        context.add_init_script(_POLICY)
        context.on("console", self._heard)
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        context.on("request", self._requested)
        context.on("dialog", lambda dialog: (self.faults.append("a dialog"), dialog.dismiss()))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def _requested(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.hostname not in _LOOPBACK:
            self.faults.append(f"a request to {parts.hostname}")

    def check(self) -> None:
        """Fail if anything went wrong."""
        if faults := [fault for fault in self.faults if not any(part in fault for part in self.allowed)]:
            raise AssertionError("; ".join(faults))


@contextmanager
def watched_page(browser: Browser, screen: Screen = WIDE, *, allowed: Sequence[str] = ()) -> Iterator[Page]:
    """Open a page in a browser of its own; at the end, nothing may have gone wrong."""
    context = browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        color_scheme="dark" if screen.is_dark else "light",
        java_script_enabled=screen.has_scripts,
        reduced_motion="reduce",
    )
    watched = Watched(allowed=allowed)
    watched.watch(context)
    try:
        yield context.new_page()
        watched.check()
    finally:
        context.close()


def grave_findings(page: Page) -> list[str]:
    """Return what axe calls serious or critical, and where."""
    page.wait_for_load_state()  # without its styles, links have a browser's own colors
    page.evaluate(_AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['impact']} {violation['id']}: {node['html'][:200]}"
        for violation in found["violations"]
        if violation["impact"] in _GRAVE
        for node in violation["nodes"]
    ]


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide
