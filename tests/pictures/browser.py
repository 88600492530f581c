"""Pictures of pages, small enough for a repository."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_COLORS = 255
_SETTLES_MS = 600
"""For what moves when it is clicked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What to take a picture of."""

    name: str
    """Of the file."""
    url: str
    height: int
    """In CSS pixels."""
    width: int = 1200
    clicks: Sequence[str] = ()
    """What to click first, as Playwright's selectors."""


def take(picture: Picture, *, into: Path, chromium: Path) -> int:
    """Take one picture, and return the size of its file in bytes."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=[*_FLAGS])
        page = browser.new_page(
            viewport={"width": picture.width, "height": picture.height}, device_scale_factor=1.25
        )
        page.goto(picture.url, wait_until="networkidle")
        for selector in picture.clicks:
            page.locator(selector).first.click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(_SETTLES_MS)
        shot = page.screenshot(animations="disabled")
        browser.close()
    file = into / picture.name
    with Image.open(BytesIO(shot)) as image:
        image.convert("RGB").quantize(_COLORS).save(file, optimize=True)
    return file.stat().st_size
