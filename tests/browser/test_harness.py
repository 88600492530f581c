"""The harness itself: it sees what it is there to see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.browser.chromium import NARROW, grave_findings, overflow, watched_page
from tests.browser.served import serving_app

pytestmark = pytest.mark.slow

GOOD = "<!doctype html><html lang='en'><title>t</title><main><h1>Fine</h1></main>"
BAD = {
    "a request elsewhere": ("<img src='http://192.0.2.1/x.png' alt=''>", "a request to 192.0.2.1"),
    "an error in the console": ("<script>console.error('oops')</script>", "console: oops"),
    "an error of a page": ("<script>null.x</script>", "error: "),
    "a dialog": ("<script>alert(1)</script>", "a dialog"),
    "a breach of the policy": ("<style>p {color: red}</style>", "policy: style-src"),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    def show(request: Request) -> HTMLResponse:
        name = request.query_params.get("bad", "")
        policy = {"content-security-policy": "style-src 'none'"}
        return HTMLResponse(GOOD + BAD[name][0] if name else GOOD, headers=policy)

    icon = Route("/favicon.ico", lambda _: HTMLResponse(""))
    with serving_app(Starlette(routes=[Route("/", show), icon])) as served:
        yield served


def test_a_good_page_passes(browser: Browser, url: str) -> None:
    with watched_page(browser, NARROW) as page:
        page.goto(url)
        assert overflow(page) == 0
        assert grave_findings(page) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_page_fails(browser: Browser, url: str, name: str) -> None:
    with pytest.raises(AssertionError) as caught, watched_page(browser) as page:  # noqa: PT012
        page.goto(f"{url}?bad={name}", wait_until="load")
        page.evaluate("new Promise((done) => setTimeout(done, 0))")
    assert BAD[name][1] in str(caught.value)


def test_what_is_too_wide_or_not_accessible_is_found(browser: Browser, url: str) -> None:
    with watched_page(browser, NARROW) as page:
        page.goto(url)
        page.evaluate("document.body.style.width = '500px'")
        page.evaluate("document.body.append(new Image())")
        assert overflow(page) > 100
        assert any("image-alt" in finding for finding in grave_findings(page))
