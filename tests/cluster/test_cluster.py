"""A cluster that is broken for half a minute; by hand, ``python -m tests.cluster`` does it for twenty."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.cluster.breaking import break_at_random
from tests.cluster.scene import cluster_scene
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_whatever_breaks_each_acknowledged_answer_is_judged_once(kafka_jars: Path, tmp_path: Path) -> None:
    with cluster_scene(kafka_jars, tmp_path, ingest=2, evaluate=2, delay_s=0.1) as scene:
        scene.start(senders=4, rate=6)
        done = break_at_random(scene, seconds=30, broker_away_s=5, random=Random(3), pause_s=2.0)
        scene.end_load()
        verdict = scene.await_verdict(at_most_s=PATIENCE_S)
        assert verdict.faults == [], scene.told()
    assert verdict.acknowledged > 20
    assert done["the broker stopped"] == 1
