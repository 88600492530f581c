"""Whatever comes in: an answer that OTLP knows, no crash, and every good answer is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import fire
from tests.fuzz.bodies import heavy_bodies
from tests.fuzz.target import running_target

pytestmark = pytest.mark.night


@pytest.mark.slow
def test_nothing_that_comes_in_breaks_a_receiver(tmp_path: Path) -> None:
    with running_target(tmp_path) as target:
        target.send_sentinel()
        for body in heavy_bodies():
            target.post(body, {})
        fire(target, requests=60, seed_number=20260)
        target.send_sentinel()
        assert {"http 200", "http 400", "grpc OK", "grpc INVALID_ARGUMENT"} <= target.answers.keys()
