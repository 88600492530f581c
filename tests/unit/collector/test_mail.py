"""Mail between shards as bytes: a list when it is joined, and nothing else is taken for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.answers.summary import AnswerSummary
from ragtrace.conversations.span import SessionName
from ragtrace.errors import CodecError
from ragtrace_collector.deliver.mail import decode_mail, encode_answers, encode_turn
from ragtrace_collector.store.port import KeptTurn, WatchedAnswer
from ragtrace_collector.store.shard import shard_of_session
from tests.unit.answers.drawn_rows import summaries
from tests.unit.answers.rows import a_row

numbers = st.integers(0, (1 << 63) - 1)
turns = st.builds(
    KeptTurn,
    name=st.builds(SessionName, session=st.text(), tenant=st.text()),
    trace_id=st.text(),
    span_id=st.text(),
    start_ns=numbers,
    carrier_span_id=st.text(),
    supersedes=st.text(),
    turn=st.binary(),
    place=st.binary(),
    most_turns=numbers,
)
watched = st.builds(WatchedAnswer, id=numbers, summary=summaries())
letters = st.lists(turns | st.lists(watched, min_size=1, max_size=3), min_size=1, max_size=4)
shards = st.integers(0, 255)


def encoded(letter: KeptTurn | list[WatchedAnswer], to: int) -> bytes:
    if isinstance(letter, KeptTurn):
        return encode_turn(letter, to=to)
    return encode_answers(letter, sender=1, to=to)


def as_watched(summary: AnswerSummary) -> AnswerSummary:
    """Return what the watch keeps of an answer."""
    return AnswerSummary(
        key=summary.key,
        carrier_span_id="",
        time_ns=summary.judged_ns,
        judged_ns=summary.judged_ns,
        label=summary.label,
        probability=summary.probability,
        metrics=tuple(
            replace(metric, direction=type(metric.direction).HIGHER_IS_BETTER) for metric in summary.metrics
        ),
        service=summary.service,
        model=summary.model,
        prompt_version=summary.prompt_version,
    )


@given(letters=letters, to=shards)
def test_joined_mail_is_read_as_a_list_in_its_order(
    letters: list[KeptTurn | list[WatchedAnswer]], to: int
) -> None:
    parts = [encoded(letter, to) for letter in letters]
    read = decode_mail(b"".join(parts))
    assert [line for _, line in read] == parts
    assert {mail.to for mail, _ in read} == {to}
    for letter, (mail, _) in zip(letters, read, strict=True):
        if isinstance(letter, KeptTurn):
            assert (mail.turn, mail.answers) == (letter, ())
        else:
            assert (mail.turn, list(mail.answers)) == (None, [as_watched(each.summary) for each in letter])


@given(first=turns, second=turns)
def test_mail_has_one_id_whenever_it_is_sent(first: KeptTurn, second: KeptTurn) -> None:
    ids = [decode_mail(encode_turn(turn, to=0))[0][0].id for turn in (first, second, first)]
    assert ids[0] == ids[2]
    assert (ids[0] == ids[1]) == (first == second)


def test_equal_answers_that_wait_twice_are_two_mails() -> None:
    answers = [WatchedAnswer(id=number, summary=a_row()) for number in (1, 2)]
    sent = [encode_answers([answer], sender=sender, to=0) for answer in answers for sender in (1, 2)]
    assert len({decode_mail(line)[0][0].id for line in sent}) == 4


@given(payload=st.binary())
def test_bytes_that_are_no_mail_are_refused(payload: bytes) -> None:
    with pytest.raises(CodecError):
        decode_mail(payload)


@given(letter=turns | st.lists(watched, min_size=1, max_size=2), cut=st.integers(1, 1_000))
def test_mail_that_is_cut_is_refused(letter: KeptTurn | list[WatchedAnswer], cut: int) -> None:
    whole = encoded(letter, 0)
    with pytest.raises(CodecError):
        decode_mail(whole[: max(0, len(whole) - 1 - cut)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"to":0', b'"to":"0"'),
        (b'"to":0', b'"to":-1'),
        (b'"judged_ns":', b'"judged_ns":1e99,"other":'),
        (b'"probability":1.0', b'"probability":"secret"'),
        (b'"probability":1.0', b'"probability":NaN'),
        (b'"label":"fail"', b'"label":"secret"'),
        (b'"metrics":[', b'"metrics":[["secret"],'),
    ],
)
def test_mail_with_other_values_than_its_own_is_refused_without_quoting_it(
    before: bytes, after: bytes
) -> None:
    line = encode_answers([WatchedAnswer(id=1, summary=a_row(1, 0.0))], sender=1, to=0)
    assert before in line
    with pytest.raises(CodecError) as refused:
        decode_mail(line.replace(before, after, 1))
    assert "secret" not in str(refused.value)


def test_what_a_newer_ragtrace_adds_is_left_out() -> None:
    line = encode_turn(
        KeptTurn(
            name=SessionName(session="s"),
            trace_id="t",
            span_id="a",
            start_ns=1,
            carrier_span_id="c",
            turn=b"{}",
            place=b"",
        ),
        to=3,
    )
    ((mail, _),) = decode_mail(line.replace(b'"to":3', b'"to":3,"since":"1.9"'))
    assert (mail.to, mail.turn) == (3, decode_mail(line)[0][0].turn)


@given(session=st.text(), tenant=st.text(), of=st.integers(1, 64))
def test_a_session_is_in_one_of_the_shards(session: str, tenant: str, of: int) -> None:
    found = shard_of_session(session, tenant=tenant, shards=of)
    assert found == shard_of_session(session, tenant=tenant, shards=of)
    assert 0 <= found < of


def test_the_sessions_of_tenants_are_spread_over_the_shards() -> None:
    found = {
        shard_of_session(f"chat-{n}", tenant=tenant, shards=12) for n in range(99) for tenant in ("", "a")
    }
    assert found == set(range(12))
    assert len({shard_of_session("chat-1", tenant=str(number), shards=12) for number in range(99)}) == 12
