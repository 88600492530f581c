"""The records of real libraries' traces, beside what the applications did."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.model import Part, SkipReason
from tests.unit.traces.recordings import Recording, all_recordings, records_of


def recording_named(name: str) -> Recording:
    (found,) = (each for each in all_recordings() if each.name == name)
    return found


def test_two_services_share_a_record() -> None:
    for by in ("openinference", "openllmetry", "ragtrace"):
        recording = recording_named(f"{by}.two-services")
        (record,) = records_of(recording)
        services = {span.span_id: span.resource.attributes["service.name"] for span in recording.spans}
        assert {*services.values()} == {"handbook", "search"}
        assert {services[str(chunk.span_id)] for chunk in record.chunks} == {"search"}, by


def test_late_carrier_lies_within_the_answer_it_is_about() -> None:
    recording = recording_named("tempo.ragtrace.openai-chat.judged")
    (carrier,) = (span for span in recording.spans if span.scope.name == semconv.SCOPE_EVALUATION)
    (target,) = (span for span in recording.spans if span.span_id == carrier.parent_span_id)
    assert target.start_ns <= carrier.start_ns <= carrier.end_ns <= target.end_ns


def test_one_question_is_one_record_which_is_incomplete_if_nobody_read_it_to_its_end() -> None:
    """What is read of each part stands in docs/reading.md, which a test compares."""
    for recording in all_recordings():
        (record,) = records_of(recording)
        gap, name = record.gap(Part.ANSWER), recording.name
        is_incomplete = gap is not None and gap.reason is SkipReason.INCOMPLETE
        assert is_incomplete is name.endswith(("openai-abandoned", "openai-closed")), name
        is_chat = name.endswith(("-talk", "-agent", ".generate", ".stream")) or "pydantic" in name
        assert not (is_chat and record.context_from_prompt), name


@given(st.sampled_from(all_recordings()), st.randoms(use_true_random=False))
def test_order_parts_and_copies_of_spans_do_not_matter(recording: Recording, random: Random) -> None:
    spans = [*recording.spans, *random.sample(recording.spans, k=len(recording.spans) // 2)]
    random.shuffle(spans)
    assert records_of(replace(recording, spans=tuple(spans))) == records_of(recording)


@given(st.sampled_from(all_recordings()), st.randoms(use_true_random=False))
def test_spans_that_did_not_come_leave_gaps_and_no_exception(recording: Recording, random: Random) -> None:
    seen = random.sample(recording.spans, k=random.randint(0, len(recording.spans)))
    for record in records_of(replace(recording, spans=tuple(seen))):
        covered = {gap.part for gap in record.gaps} | {where.part for where in record.provenance}
        assert {Part.QUESTION, Part.CONTEXT, Part.ANSWER} <= covered
