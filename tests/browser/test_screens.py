"""Every screen: wide, narrow, dark, without scripts, for axe, with any text. Add a new one to ROUTES."""

from __future__ import annotations

from collections.abc import Iterator

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
from tests.browser.served import AnswerTexts, ServedPages, serving

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


SCRIPT = (
    "<script>document.title='pwned';alert(1)</script><img src=x onerror=alert(1)>"
    "\"'><svg onload=alert(1)>{{7*7}}</textarea></title>"
    "<style>*{display:none}</style><base href=//192.0.2.1/>"
)
HEBREW = "החזר כספי אורך \u202e30 ימים\u202c"
EMOJI = "👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈 Zurück in 30 Tagen 💸" + "e\u0301\u0323" * 20
LONG = "no" * 500_000


def everywhere(name: str, text: str) -> AnswerTexts:
    """Put a text into every field."""
    return AnswerTexts(
        name=name,
        claims=(f"{text} take 30 days.", f"{text} is free."),
        question=f"{text}?",
        chunks=(f"{text} take 14 days.", f"{text} is free from $50.", text),
        service=text,
        note=text,
    )


TEXTS = {
    "script": everywhere("script", SCRIPT),
    "right to left": everywhere("right to left", HEBREW),
    "emoji": everywhere("emoji", EMOJI),
    "a megabyte": AnswerTexts(
        name="a megabyte", padding=f"{LONG} ", question=LONG, chunks=("Refunds take 14 days." + LONG, LONG)
    ),
    "a megabyte of lines": AnswerTexts(name="a megabyte of lines", padding="It is so.\n" * 100_000),
}
PLACES = [
    *(("script", path) for path in ("/", "/answers", "/review/{answer}")),
    *((name, "/answers/{answer}") for name in TEXTS),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPages]:
    with serving(tmp_path_factory.mktemp("hostile"), tuple(TEXTS.values())) as served:
        yield served


@pytest.mark.parametrize(("name", "path"), PLACES)
def test_a_text_stays_text(browser: Browser, hostile: ServedPages, name: str, path: str) -> None:
    with watched_page(browser, NARROW) as page:
        response = page.goto(hostile.path(path, of=name))
        assert response
        assert response.ok
        assert "pwned" not in page.title()
        assert page.locator("main h1").is_visible()
        assert page.locator("main img, main style, main base, main script, svg[onload]").count() == 0
        assert overflow(page) <= 0
        if "megabyte" not in name:
            assert grave_findings(page) == []


def test_a_script_is_shown_as_it_was_written(browser: Browser, hostile: ServedPages) -> None:
    with watched_page(browser, WITHOUT_SCRIPTS) as page:
        page.goto(hostile.path("/answers/{answer}", of="script"))
        for place in (".question", ".answer-text", ".claim-text", ".chunk .text", ".reason"):
            assert SCRIPT in page.locator(place).first.text_content()  # type: ignore[operator]
