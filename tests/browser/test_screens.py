"""Every screen: wide, narrow and dark, for axe, without scripts. A new one joins by a line in ROUTES."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import (
    NARROW,
    WIDE,
    WITHOUT_SCRIPTS,
    Screen,
    grave_findings,
    overflow,
    watched_page,
)
from tests.browser.served import ServedPages

pytestmark = pytest.mark.slow

ROUTES = {
    "overview": "/",
    "answers": "/answers",
    "answers filtered": "/answers?label=fail&service=shop",
    "no answer": "/answers?label=error",
    "answer": "/answers/{answer}",
    "sessions": "/sessions",
    "no session": "/sessions?label=skipped",
    "session": "/sessions/chat%201",
    "review queue": "/review",
    "review": "/review/{answer}",
}
REFUSED = {
    "a filter without sense": "/answers?min=2&since=yesterdayish",
    "a review that is gone": f"/review/{'f' * 32}/{'f' * 16}",
}
SCREENS = [WIDE, NARROW]


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
@pytest.mark.parametrize("route", ROUTES)
def test_a_screen_fits_reads_and_stays_at_home(
    browser: Browser, pages: ServedPages, route: str, screen: Screen
) -> None:
    with watched_page(browser, screen) as page:
        response = page.goto(pages.path(ROUTES[route]))
        assert response
        assert response.ok
        assert page.locator("main h1").count() == 1
        assert overflow(page) <= 0
        assert grave_findings(page) == []


@pytest.mark.parametrize("route", REFUSED)
def test_a_screen_that_says_no_has_a_way_on(browser: Browser, pages: ServedPages, route: str) -> None:
    with watched_page(browser, NARROW, allowed=["status of 4"]) as page:
        page.goto(pages.path(REFUSED[route]))
        assert page.locator("main a").count() > 0
        assert overflow(page) <= 0
        assert grave_findings(page) == []


@pytest.mark.parametrize("route", ["overview", "answers", "answer", "session", "review"])
def test_a_screen_says_the_same_without_scripts(browser: Browser, pages: ServedPages, route: str) -> None:
    with watched_page(browser) as page:
        page.goto(pages.path(ROUTES[route]))
        headings = page.locator("h1, h2").all_text_contents()
    with watched_page(browser, WITHOUT_SCRIPTS) as page:
        page.goto(pages.path(ROUTES[route]))
        assert page.locator("h1, h2").all_text_contents() == headings
