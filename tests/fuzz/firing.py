"""Fire drawn requests at a collector, a round at a time."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.fuzz.bodies import Body, bodies
from tests.fuzz.target import Target

__all__ = ["fire"]

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
    @given(body=bodies(), headers=_headers(), packed=st.booleans(), metadata=_metadata())
    def shoot(
        body: Body, headers: dict[str, str], packed: bool, metadata: tuple[tuple[str, str], ...]
    ) -> None:
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
