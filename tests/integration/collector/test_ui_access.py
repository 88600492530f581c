"""Who sees the pages: nobody but this machine without a token, tenants what is theirs, and no other site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.routing import Route

from ragtrace.errors import ConfigError
from ragtrace_collector.ui.security import COOKIE
from ragtrace_collector.web.server import open_auth
from tests.integration.collector.running import config_of
from tests.integration.collector.ui_pages import (
    SESSION_S,
    HandClock,
    Pages,
    Texts,
    csrf_of,
    grant,
    log_in,
    with_tenant,
)
from tests.unit.answers.rows import a_row

ALICE, READER, SENDER = "rt_alice", "rt_reader", "rt_sender"
GRANTS = (grant(ALICE), grant(READER, "read"), grant(SENDER, "send"))
SHOP, BANK = "rt_shop", "rt_bank"
OF_TENANTS = (grant(SHOP, tenant="shop"), grant(BANK, tenant="bank"), grant(ALICE))
UNDONE = {"saved": "1:1"}


def test_every_response_has_the_headers_that_keep_others_out() -> None:
    client = Pages().client()
    for path in ("/answers", "/no-such-page", "/static/ui.css", "/answers?min=x", "/answers/x/y"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        rules = ("default-src 'none'", "script-src 'self'", "form-action 'self'", "frame-ancestors 'none'")
        assert all(rule in policy for rule in rules), path
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == ("no-cache" if "static" in path else "no-store")


def test_what_breaks_inside_is_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    pages = Pages(rows=[a_row(1)])
    pages.source.failure = RuntimeError("the question was: my salary")
    answer = pages.client(raise_server_exceptions=False).get("/answers?text=days")
    assert answer.status_code == 500
    assert answer.headers["content-security-policy"]
    assert "salary" not in answer.text + caplog.text
    assert "Traceback" not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text


def test_with_tokens_nothing_is_shown_before_the_login() -> None:
    client = Pages(rows=[a_row(1)], grants=GRANTS, notices=["secret notice"]).client()
    for path in ("/", "/answers", "/answers.csv", "/no-such-page", f"/answers/{'1' * 32}/{'2' * 16}"):
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?back=")
    form = client.get("/login").text
    assert "secret notice" not in form
    assert "memory:test" not in form
    assert client.get("/static/ui.css").status_code == 200


def test_the_login_leads_to_no_other_site() -> None:
    client = Pages(grants=GRANTS).client()
    for back in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/\t/evil.example", "evil"):
        answer = client.post("/login", data={"token": ALICE, "back": back}, follow_redirects=False)
        assert answer.headers["location"] == "/", back


def test_the_cookie_is_for_this_site_and_no_script() -> None:
    cookies = []
    for is_secure in (False, True):
        client = Pages(grants=GRANTS, is_secure=is_secure).client()
        answer = client.post("/login", data={"token": ALICE}, follow_redirects=False)
        cookies.append(answer.headers["set-cookie"].lower())
        assert "httponly" in cookies[-1]
        assert "samesite=strict" in cookies[-1]
        assert f"max-age={SESSION_S}" in cookies[-1]
        assert ALICE not in cookies[-1]
    assert ["secure" in cookie for cookie in cookies] == [False, True]


def test_a_wrong_token_is_told_and_no_session_begins() -> None:
    client = Pages(grants=GRANTS).client()
    for token, said in (("rt_guess", "not known"), ("", "not known"), (SENDER, "may not read")):
        answer = log_in(client, token)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
        assert said in answer.text
        assert token not in answer.text or not token


def test_guesses_are_few_a_minute_and_hinder_nobody_else() -> None:
    pages = Pages(grants=GRANTS)
    client = pages.client()
    codes = [log_in(client, f"rt_guess{n}").status_code for n in range(12)]
    assert codes == [403] * 10 + [429] * 2
    assert log_in(client, ALICE).status_code == 429
    pages.clock.now += 61_000_000_000
    assert log_in(client, ALICE).status_code == 200


def test_a_logout_ends_the_session_on_the_server() -> None:
    client = Pages(grants=GRANTS).client()
    log_in(client, ALICE)
    session = client.cookies[COOKIE]
    assert client.post("/logout", data={}).status_code == 403
    client.post("/logout", data={"csrf": csrf_of(client)})
    client.cookies.clear()
    answer = client.get("/answers", headers={"cookie": f"{COOKIE}={session}"}, follow_redirects=False)
    assert answer.status_code == 303


@pytest.mark.parametrize("token", [None, ALICE])
def test_a_form_without_the_sessions_token_does_nothing(token: str | None) -> None:
    pages = Pages(grants=GRANTS if token else ())
    client = pages.client()
    if token:
        log_in(client, token)
    for path in ("/review/undo", "/logout"):
        for csrf in ("", "guessed"):
            assert client.post(path, data={**UNDONE, "csrf": csrf}).status_code == 403


def test_a_form_of_another_site_does_nothing() -> None:
    pages = Pages()
    client = pages.client()
    csrf = csrf_of(client)
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ):
        answer = client.post("/review/undo", data={**UNDONE, "csrf": csrf}, headers=headers)
        assert answer.status_code == 403, headers


def test_a_link_from_another_site_begins_again_so_that_the_cookie_is_sent() -> None:
    client = Pages(grants=GRANTS).client()
    answer = client.get("/answers?label=fail", headers={"sec-fetch-site": "cross-site"})
    assert 'http-equiv="refresh" content="0; url=/answers?label=fail"' in answer.text
    assert 'name="token"' not in answer.text


def test_a_reader_writes_nothing() -> None:
    pages = Pages(grants=GRANTS)
    client = pages.client()
    log_in(client, READER)
    assert (
        client.post("/review/undo", data={**UNDONE, "csrf": csrf_of(client, "/answers")}).status_code == 403
    )


def test_a_program_reads_with_a_token_in_its_header_and_writes_nothing() -> None:
    pages = Pages(rows=[a_row(1)], grants=GRANTS)
    client = pages.client()
    bearer = {"authorization": f"Bearer {ALICE}"}
    assert client.get("/answers.jsonl", headers=bearer).text.count("\n") == 1
    assert client.post("/review/undo", data=UNDONE, headers=bearer).status_code == 403
    assert client.get("/answers", headers={"authorization": "Bearer rt_guess"}).status_code == 401
    assert client.get("/answers", headers={"authorization": f"Bearer {SENDER}"}).status_code == 403


def test_a_search_for_words_opens_the_tenants_own_answers_alone() -> None:
    rows = [
        with_tenant(a_row(number, service=f"{who}-bot"), who) for number, who in ((1, "shop"), (2, "bank"))
    ]
    pages = Pages(
        rows=rows, grants=OF_TENANTS, source=Texts({f"{number:016x}": "30 days" for number in (1, 2)})
    )
    client = pages.client()
    log_in(client, SHOP)
    for path in ("/answers", "/answers.csv", "/answers.jsonl"):
        before, text = pages.source.opened, client.get(f"{path}?text=days").text
        assert "shop-bot" in text
        assert "bank" not in text
        assert pages.source.opened == before + 1
    (row,) = client.get("/answers.records").text.splitlines()
    assert f"{1:032x}" in row


def test_no_page_answers_for_another_tenant() -> None:
    """Every route that takes a tenant, whichever page it is of: in the URL, and in what forms send."""
    client = Pages(rows=[with_tenant(a_row(1), "bank")], grants=OF_TENANTS).client()
    log_in(client, SHOP)
    csrf = csrf_of(client)
    fields = {"csrf": csrf, "tenant": "bank", "query": "tenant=bank", "name": "x"}
    answered = {}
    for route in _routes(client):
        path = re.sub(r"\{(\w+)\}", lambda found: _IDS.get(found[1], "1"), route.path)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            send = {"data": fields} if method == "POST" else {}
            answer = client.request(method, f"{path}?tenant=bank", follow_redirects=False, **send)  # type: ignore[arg-type]
            answered[f"{method} {route.path}"] = answer.status_code
    without_tenants = {"GET /login", "POST /login", "POST /logout"}
    shown = {
        name: code
        for name, code in answered.items()
        if code not in (403, 404) and name not in without_tenants
    }
    assert shown == {}


_IDS = {"trace_id": f"{1:032x}", "span_id": f"{1:016x}", "format": "csv"}


def _routes(client: object) -> list[Route]:
    routes = client.app.routes  # type: ignore[attr-defined]
    found = [route for route in routes if isinstance(route, Route)]
    return sorted(found, key=lambda route: route.path == "/logout")


def test_other_machines_see_no_page_without_tokens(tmp_path: Path) -> None:
    for receive in ({}, {"insecure": True}, {"insecure": True, "tls": {"cert": "x", "key": "y"}}):
        config = config_of(tmp_path, receive=receive, ui={"listen": "0.0.0.0:0"})
        with pytest.raises(ConfigError, match="tokens"):
            open_auth(config, HandClock())


def test_an_answer_of_nobody_is_opened_by_the_tenant_that_the_index_names() -> None:
    """A back end may have left the tenant out of the spans; then the index must know whose it is."""
    source = Texts({f"{1:016x}": "It takes 30 days."})
    client = Pages(rows=[with_tenant(a_row(1), "bank")], grants=OF_TENANTS, source=source).client()
    log_in(client, SHOP)
    for page in ("answers", "review"):
        assert client.get(f"/{page}/{1:032x}/{1:016x}").status_code == 404
