"""What readers do, from an empty virtual environment to the verdict: each in the table is one who does it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragtrace import semconv
from tests.backends.jaeger_server import Jaeger
from tests.backends.process import eventually
from tests.stories.environments import ENVIRONMENTS, Environment, install, is_made
from tests.stories.place import Place, open_place
from tests.stories.table import JUDGED, TOLD, Judged, Told

PROGRAM = [ENVIRONMENTS["collector"].bin / "ragtrace"]

pytestmark = [pytest.mark.slow, pytest.mark.night]


def made(environment: Environment) -> None:
    """Put today's ragtrace into the environment; skip where it was never made, or fail where it must be."""
    if not is_made(environment):
        reason = f"the environment {environment.name!r} is not there: run `python -m tests.stories`"
        if os.environ.get("RAGTRACE_REQUIRE_BACKENDS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    install(environment)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made(ENVIRONMENTS["collector"])
    with open_place(tmp_path_factory.mktemp("stories"), PROGRAM) as opened:
        yield opened


def in_its_environment(story: Judged | Told) -> object:
    group = pytest.mark.xdist_group(story.start.environment.name)
    return pytest.param(story, marks=group, id=story.start.name)


@pytest.mark.parametrize("story", [in_its_environment(story) for story in JUDGED])
def test_a_reader_sees_the_verdict(place: Place, story: Judged) -> None:
    made(story.start.environment)
    ran = place.run(story.start)
    seen = place.see(story.start)
    assert seen.carrier.name == story.span, seen.carrier.attributes.get(semconv.BRIEF)
    assert seen.claims == (story.claim,)
    record = seen.record
    assert record.question == story.start.question
    assert record.answer, "no answer was read"
    assert record.answer.strip() in ran.answer
    assert len(record.chunks) == story.chunks
    assert all(chunk.text for chunk in record.chunks)
    assert seen.is_from_prompt == story.from_prompt


@pytest.mark.parametrize("story", [in_its_environment(story) for story in TOLD])
def test_a_reader_is_told_what_is_missing(place: Place, story: Told) -> None:
    made(story.start.environment)
    ran = place.run(story.start, listening=story.listening)
    if story.on_stderr:
        told = [line for line in ran.errors.splitlines() if all(part in line for part in story.says)]
        assert len(told) == 1, ran.errors
    else:
        said = place.reason(story.start)
        assert all(part in said for part in story.says), said


def test_a_reader_finds_the_wrong_answer_in_jaeger(jaeger: Jaeger, tmp_path: Path) -> None:
    made(ENVIRONMENTS["collector"])
    story = next(story for story in JUDGED if story.start.name == "plain-code")
    made(story.start.environment)
    with open_place(tmp_path, PROGRAM, back_ends=[jaeger.otlp_grpc]) as place:
        place.run(story.start)

        def found() -> bool:
            return len(jaeger.search("support-bot", operation="evaluation fail")) == 1

        eventually(found, what="the trace in Jaeger, by the operation `evaluation fail`")
