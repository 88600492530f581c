"""The records of real libraries' traces, beside what the applications did."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.traces.recordings import Agreement, Recording, agreement, all_recordings, records_of

MISSING, PARTIAL, DIFFERENT = Agreement.MISSING, Agreement.PARTIAL, Agreement.DIFFERENT

_CHUNKS_IN_THE_PROMPT = {"chunks": MISSING, "ids": MISSING, "scores": MISSING}
"""A chat alone: no span is of the retriever, whatever the convention."""

SHORTFALLS: Mapping[str, Mapping[str, Agreement]] = {
    **dict.fromkeys(
        (
            "logfire.openai-chat",
            "openinference.anthropic",
            "openinference.openai-async",
            "openinference.openai-chat",
            "openinference.openai-responses",
            "openinference.openai-streaming",
        ),
        _CHUNKS_IN_THE_PROMPT,
    ),
    "haystack.haystack.off": {**_CHUNKS_IN_THE_PROMPT, "answer": MISSING, "model": MISSING},
    "openinference.langchain.hidden": {
        "question": MISSING,
        "chunks": MISSING,
        "ids": MISSING,
        "answer": MISSING,
    },
}
"""What a convention does not carry, or carries in another form. Everything else is the same as the truth."""


RECORDS: Mapping[str, int] = {"openinference.langchain.twice": 2}
"""Where the SDK's own span of the chat is in a trace of its own: a chat for which nothing was retrieved."""


@pytest.mark.parametrize("recording", all_recordings(), ids=lambda recording: recording.name)
def test_record_agrees_with_what_the_application_did(recording: Recording) -> None:
    found = agreement(recording)
    assert {part: how for part, how in found.items() if how is not Agreement.SAME} == SHORTFALLS.get(
        recording.name, {}
    )


@pytest.mark.parametrize("recording", all_recordings(), ids=lambda recording: recording.name)
def test_one_question_is_one_record(recording: Recording) -> None:
    assert len(records_of(recording)) == RECORDS.get(recording.name, 1)


def test_every_known_shortfall_is_of_a_recording() -> None:
    assert SHORTFALLS.keys() | RECORDS.keys() <= {recording.name for recording in all_recordings()}
