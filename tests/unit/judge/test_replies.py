from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply, reply_schema
from ragtrace.judge_forms import ExtractReply, VerifyReply

EMPTY = VerifyReply(verdicts=[])


@given(st.text(max_size=200))
def test_any_text_that_is_no_reply_says_so(text: str) -> None:
    with pytest.raises((NotJson, InvalidReply), match=r"."):
        parse_reply(text.replace("verdicts", ""), VerifyReply)


@given(st.text(alphabet="ab {}[]\n`,", max_size=40), st.text(alphabet="ab }]\n`,", max_size=40))
def test_a_reply_is_found_whatever_stands_around_it(before: str, after: str) -> None:
    assert parse_reply(f"{before} {json.dumps(EMPTY.model_dump())} {after}", VerifyReply) == EMPTY


@pytest.mark.parametrize("text", ["{" * 5000, "[" * 5000, '{"a":' * 5000, "{}{" * 500])
def test_hostile_nesting_is_no_reply(text: str) -> None:
    with pytest.raises((NotJson, InvalidReply)):
        parse_reply(text, VerifyReply)


def test_what_is_wrong_does_not_quote_the_reply() -> None:
    with pytest.raises(InvalidReply) as caught:
        parse_reply('{"verdicts": [{"id": "SECRET"}]}', VerifyReply)
    assert "verdicts.0.id" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("form", [ExtractReply, VerifyReply])
def test_every_string_and_list_of_a_schema_is_bounded(form: type[ExtractReply | VerifyReply]) -> None:
    def check(schema: object) -> None:
        if isinstance(schema, list):
            for item in schema:
                check(item)
        if isinstance(schema, dict):
            assert schema.get("type") != "string" or "maxLength" in schema or "enum" in schema
            assert schema.get("type") != "array" or "maxItems" in schema
            check(list(schema.values()))

    check(reply_schema(form))
    assert "max" not in json.dumps(reply_schema(form, bounded=False))
