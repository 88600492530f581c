"""Logging in, a session that ends, and what a token may not do: a plain sentence, and a way back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import NARROW, grave_findings, overflow, watched_page
from tests.browser.served import ServedPages, serving
from tests.integration.collector.ui_pages import grant

pytestmark = pytest.mark.slow

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


def test_a_review_whose_session_ended_is_not_lost(browser: Browser, guarded: ServedPages) -> None:
    with watched_page(browser, allowed=["status of 401"]) as page:
        asked = guarded.path("/review/{answer}")
        page.goto(asked)
        log_in(page, REVIEWER)
        page.wait_for_url(asked)
        page.locator("input[type=radio]").first.check()
        page.locator(".note input").first.fill("as the FAQ says")
        guarded.clock.ahead_ns = 2 * 3_600 * 10**9
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Your session has ended").wait_for()
        log_in(page, REVIEWER)
        page.get_by_role("button", name="Send it now").click()
        page.wait_for_url("**/answers/*/*")
        page.goto(asked)
        assert page.locator(".note input").first.input_value() == "as the FAQ says"
