"""Fire drawn requests at a collector, a round at a time."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.fuzz.bodies import Body, bodies
from tests.fuzz.target import Target

_SENTINEL_EVERY = 50


def fire(target: Target, *, requests: int, seed_number: int) -> None:
    """Send so many requests over each protocol. A failure is shrunk to the least that shows it."""

    @seed(seed_number)
    @settings(
        max_examples=requests,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        body=bodies(),
        headers=_headers(),
        packed=st.booleans(),
        metadata=_metadata(),
        odd=st.none() | _odd_http(),
    )
    def shoot(
        body: Body,
        headers: dict[str, str],
        packed: bool,
        metadata: tuple[tuple[str, str], ...],
        odd: bytes | None,
    ) -> None:
        if odd is not None:
            target.say(odd)
        target.post(body, headers)
        target.call(body.content, packed=packed, metadata=metadata)
        target.check_alive()
        if sum(target.answers.values()) // 2 % _SENTINEL_EVERY == 0:
            target.send_sentinel()

    shoot()


def _headers() -> SearchStrategy[dict[str, str]]:
    value = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
    types = st.sampled_from(
        ["application/x-protobuf", "application/json", "Application/JSON; charset=utf-8", "text/plain", ""]
    )
    odd = st.fixed_dictionaries(
        {},
        optional={
            "content-type": types | value,
            "accept": value,
            "authorization": value,
            "user-agent": value,
            "x-" + "long" * 20: value,
            "expect": st.just("100-continue"),
            "connection": st.sampled_from(["close", "upgrade", "keep-alive"]),
            "upgrade": st.sampled_from(["websocket", "h2c"]),
        },
    )
    return st.one_of(st.just({}), st.just({}), odd)


def _metadata() -> SearchStrategy[tuple[tuple[str, str], ...]]:
    value = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
    pair = st.tuples(st.sampled_from(["authorization", "x-tenant", "user"]), value)
    return st.one_of(st.just(()), st.lists(pair, max_size=3).map(tuple))


def _odd_http() -> SearchStrategy[bytes]:
    """Draw requests whose frames are wrong: lengths that lie, chunks that end nowhere, several in one."""
    start = st.sampled_from(
        [b"POST /v1/traces HTTP/1.1\r\n", b"POST /v1/traces HTTP/1.0\r\n", b"POST /v1/traces HTTP/9.9\r\n",
         b"GET /healthz HTTP/1.1\r\n", b"GET /../../etc/passwd HTTP/1.1\r\n", b"DELETE * HTTP/1.1\r\n",
         b"POST  /v1/traces\r\n", b"CONNECT a:1 HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
         b"\x16\x03\x01"]
    )  # fmt: skip
    header = st.sampled_from(
        [b"host: a\r\n", b"content-type: application/x-protobuf\r\n", b"content-type: application/json\r\n",
         b"content-length: 5\r\n", b"content-length: -1\r\n", b"content-length: 99999999999999999999\r\n",
         b"transfer-encoding: chunked\r\n", b"transfer-encoding: gzip, chunked\r\n",
         b"content-encoding: gzip\r\n",
         b"expect: 100-continue\r\n", b"connection: close\r\n", b"x: " + b"a" * 70_000 + b"\r\n", b": \r\n",
         b"x:\x00\r\n", b" folded: a\r\n"]
    )  # fmt: skip
    body = st.binary(max_size=20) | st.sampled_from(
        [b"0\r\n\r\n", b"5\r\nabcde\r\n0\r\n\r\n", b"fffffffffff\r\n"]
    )
    request = st.builds(
        lambda line, headers, rest: line + b"".join(headers) + b"\r\n" + rest,
        start,
        st.lists(header, max_size=5),
        body,
    )
    return st.lists(request, min_size=1, max_size=3).map(b"".join)
