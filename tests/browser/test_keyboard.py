"""The whole job by keyboard alone, and a session that ends meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import NARROW, grave_findings, overflow, watched_page
from tests.browser.served import ServedPages, serving
from tests.integration.collector.ui_pages import grant

pytestmark = pytest.mark.slow


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(100):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        press(page, "Tab")
    raise AssertionError(f"Tab never reaches {selector}")


def focused(page: Page) -> str:
    found: str = page.evaluate("document.activeElement.textContent")
    return found


def test_from_the_list_to_a_saved_review(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as pages, watched_page(browser) as page:
        page.goto(pages.url)
        press(page, "g", "a")
        page.wait_for_url("**/answers")
        press(page, "j", "j", "k", "Enter")
        page.wait_for_url("**/answers/*/*")
        press(page, "w")
        assert "Refunds take 30 days." in focused(page)
        press(page, "Enter")
        assert "Refunds take 14 days" in page.evaluate("document.activeElement.closest('.chunk').textContent")
        press(page, "Escape")
        assert "Refunds take 30 days." in focused(page)
        tab_to(page, "a[href*='/review/']")
        press(page, "Enter")
        page.wait_for_url("**/review/*/*")
        path = page.url
        press(page, "j", "2", "j", "1", "n")
        page.keyboard.type("as the FAQ says")
        press(page, "Enter")
        page.wait_for_url("**/answers/*/*")
        assert "as the FAQ says" in page.locator("main").inner_text()
        reviewed = next(key for key in pages.keys.values() if key.trace_id in path)
        assert sorted(pages.reviews(reviewed)) == ["contradicted", "supported"]


def test_a_queue_is_reviewed_without_the_mouse_until_it_is_empty(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as pages, watched_page(browser) as page:
        page.goto(pages.url)
        press(page, "g", "r")
        page.wait_for_url("**/review")
        tab_to(page, "a[href*='queue=random']")
        press(page, "Enter")
        for _ in pages.keys:
            page.wait_for_url("**/review/*/*queue=random*")
            at = page.url
            press(page, "j", "1", "j", "1", "Enter")
            page.wait_for_url(lambda url, before=at: url != before)
        assert "This queue is empty" in page.locator("main").inner_text()
        assert all(pages.reviews(key) == ["supported"] * 2 for key in pages.keys.values())


@pytest.mark.parametrize("path", ["/answers", "/review/{answer}"])
def test_help_opens_says_the_keys_and_gives_the_focus_back(
    browser: Browser, pages: ServedPages, path: str
) -> None:
    with watched_page(browser) as page:
        page.goto(pages.path(path))
        press(page, "?")
        assert page.locator("dialog[open] kbd").count() >= 3
        press(page, "Escape")
        page.locator("dialog").wait_for(state="detached")
        press(page, "Tab")
        assert page.evaluate("document.activeElement !== document.body")


REVIEWER, READER = "rt_reviewer", "rt_reader"


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPages]:
    grants = [grant(REVIEWER, "read", "review"), grant(READER, "read")]
    with serving(tmp_path_factory.mktemp("guarded"), grants=grants) as served:
        yield served


def log_in(page: Page, token: str) -> None:
    page.locator("#token:focus").wait_for()  # without a click
    page.keyboard.type(token)
    page.keyboard.press("Enter")


def test_the_login_fits_and_reads(browser: Browser, guarded: ServedPages) -> None:
    with watched_page(browser, NARROW, allowed=["status of 403"]) as page:
        page.goto(guarded.url)
        assert overflow(page) <= 0
        assert grave_findings(page) == []
        log_in(page, "rt_wrong")
        page.get_by_role("alert").wait_for()
        assert grave_findings(page) == []


def test_a_session_that_ended_leads_back_to_where_it_was(browser: Browser, guarded: ServedPages) -> None:
    with watched_page(browser) as page:
        asked = guarded.path("/answers/{answer}")
        page.goto(asked)
        page.wait_for_url("**/login?back=*")
        log_in(page, REVIEWER)
        page.wait_for_url(asked)
        guarded.clock.ahead_ns = 2 * 3_600 * 10**9
        page.reload()
        page.wait_for_url("**/login?back=*")
        log_in(page, REVIEWER)
        page.wait_for_url(asked)
        assert page.locator("h1").is_visible()
