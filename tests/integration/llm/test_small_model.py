"""A real language model behind `openai:MODEL`: what is asked of it and what comes back has the right form.

The model is too small to understand anything: nothing here looks at what it says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field

from ragtrace.errors import JudgeNonsense
from ragtrace.judge import open_judge, unwrapped
from ragtrace.judge.openai import LanguageModelJudge, Likelihoods, OutputMode
from ragtrace.ports import FreeText, Judge, JudgeRequest, YesProbability
from tests.backends.small_model_server import running_small_model
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.long]

SPEC = "openai:smollm2"
CONTEXT = 2048

ReplyT = TypeVar("ReplyT", bound=BaseModel)


class Asked(BaseModel):
    """Judges that compute would read this."""


class Weather(BaseModel):
    sky: Literal["blue", "grey", "black"]
    wind: Annotated[int, Field(ge=0, le=12)]
    words: list[Annotated[str, Field(max_length=12)]] = Field(max_length=2)


def request(user: str, reply_type: type[ReplyT], *, tokens: int = 96) -> JudgeRequest[ReplyT]:
    return JudgeRequest(
        step="test",
        system="You answer briefly.",
        user=user,
        reply_type=reply_type,
        inputs=Asked(),
        max_output_tokens=tokens,
    )


@pytest.fixture(scope="module")
def base_url(gguf: Path) -> Iterator[str]:
    with running_small_model(gguf, context=CONTEXT) as url:
        yield url


@pytest.fixture
async def judge(base_url: str) -> AsyncIterator[Judge]:
    opened = open_judge(SPEC, base_url=base_url, timeout_s=PATIENCE_S)
    yield opened
    await opened.aclose()


def inner(judge: Judge) -> LanguageModelJudge:
    found = unwrapped(judge)
    assert isinstance(found, LanguageModelJudge)
    return found


async def test_a_reply_obeys_its_json_schema(judge: Judge) -> None:
    reply = await judge.ask(request("How is the weather?", Weather))
    assert Weather.model_validate(reply.value) == reply.value
    assert reply.usage.calls == 1
    assert inner(judge).output_mode is OutputMode.JSON_SCHEMA


async def test_log_probabilities_give_a_probability_of_yes(judge: Judge) -> None:
    reply = await judge.ask(request("Is Paris in France? Answer Yes or No.", YesProbability))
    assert 0 < reply.value.p_yes < 1
    assert reply.usage.output_tokens == 1
    assert inner(judge).likelihoods is Likelihoods.TOP_20


async def test_a_prompt_beyond_the_context_says_what_to_do(judge: Judge) -> None:
    with pytest.raises(JudgeNonsense, match="serve the model with a larger context"):
        await judge.ask(request("word " * 2 * CONTEXT, FreeText))
