"""What takes longer than a moment shows that it is under way, and what was asked for arrives."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import watched_page
from tests.browser.served import ServedPages

pytestmark = pytest.mark.slow

# Playwright asks a page nothing while it waits for the next one.
TELL_PROGRESS = """
new MutationObserver((changes) => {
  for (const {addedNodes} of changes)
    for (const added of addedNodes) console.log(added.getAttribute("role"));
}).observe(document.body, {childList: true});
"""


def test_a_slow_answer_shows_progress_until_it_is_there(browser: Browser, pages: ServedPages) -> None:
    with watched_page(browser) as page:
        page.goto(pages.path("/answers"))
        page.evaluate(TELL_PROGRESS)
        pages.source.let_go.clear()
        with page.expect_console_message(lambda message: message.text == "progressbar"):
            page.locator("table.answers th a").first.click(no_wait_after=True)
        pages.source.let_go.set()
        page.wait_for_url("**/answers/*/*")
        assert page.get_by_role("progressbar").count() == 0
