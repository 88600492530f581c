"""Combines steps C and D in one request: the grades of chunks, and the verdicts on a reference.

Both steps show the judge the same chunks, which are most of the cost of a request. A `Bundle` wraps the judge
of the two steps: it holds back the first request of each until it has both, asks once, and returns to each
step its part of the reply. The steps check their parts as usual; their further requests pass through
unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeNonsense
from ragtrace.judge_forms import (
    ChunksInput,
    ChunksReply,
    RetrievalInput,
    RetrievalReply,
    VerifyInput,
    VerifyReply,
)
from ragtrace.judge_steps import Grading, Prompt, Verification
from ragtrace.metrics.asking import both
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.steps.chunks import grade_chunks
from ragtrace.metrics.steps.step import Material, chunk_sections, numbered_section
from ragtrace.metrics.steps.verify import verify_reference
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)


async def grade_and_recall(material: Material) -> tuple[Grading, Verification]:
    """Run both steps, with one request if the judge takes it."""
    if not material.judge.identity.computes:  # a second judge may be such a one; it has no combined request
        bundle = Bundle(material.judge, prompt=material.prompts.retrieval, fence_code=material.fence_code)
        material = replace(material, judge=bundle)
    return await both(grade_chunks(material), verify_reference(material))


class Bundle:
    """A judge for one run of the steps ``chunks`` and ``recall``, both of which must ask."""

    def __init__(self, judge: Judge, *, prompt: Prompt, fence_code: str) -> None:
        self._judge = judge
        self._prompt = prompt
        self._fence_code = fence_code
        self._combined: set[str] = set()
        """The steps whose first requests were taken."""
        self._first: dict[str, JudgeRequest[Any]] = {}
        """Those requests, until they are sent: they hold the material, which holds this."""
        self._reply: asyncio.Future[JudgeReply[RetrievalReply] | None] = asyncio.Future()

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self._judge.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; the first requests of the two steps are combined.

        If the judge cannot answer the combined request, each is asked separately.
        """
        if request.step in self._combined:
            return await self._judge.ask(request)
        self._combined.add(request.step)
        self._first[request.step] = request
        if len(self._first) == 2:
            await self._ask_both()
        reply = await self._reply
        if reply is None:
            return await self._judge.ask(request)
        return cast(
            JudgeReply[ReplyT], JudgeReply(value=_PARTS[request.step](reply.value), usage=reply.usage)
        )

    async def aclose(self) -> None:
        """Close the judge."""
        await self._judge.aclose()

    async def _ask_both(self) -> None:
        try:
            both = self._request()
            self._first.clear()
            self._reply.set_result(await self._judge.ask(both))
        except JudgeNonsense:
            self._reply.set_result(None)
        except JudgeError as failed:
            self._reply.set_exception(failed)
        except BaseException:
            self._reply.cancel()
            raise

    def _request(self) -> JudgeRequest[RetrievalReply]:
        chunks, recall = self._first["chunks"], self._first["recall"]
        graded, verified = cast(ChunksInput, chunks.inputs), cast(VerifyInput, recall.inputs)
        given = RetrievalInput(question=graded.question, chunks=graded.chunks, claims=verified.claims)

        def check(reply: RetrievalReply) -> None:
            if recall.check:
                recall.check(_verdicts(reply))

        return JudgeRequest(
            step="retrieval",
            system=self._prompt.text,
            user=_render(given, self._fence_code),
            reply_type=RetrievalReply,
            inputs=given,
            max_output_tokens=chunks.max_output_tokens + recall.max_output_tokens,
            check=check,
        )


def _grades(reply: RetrievalReply) -> ChunksReply:
    return ChunksReply(chunks=reply.chunks)


def _verdicts(reply: RetrievalReply) -> VerifyReply:
    return VerifyReply(verdicts=reply.verdicts)


_PARTS: dict[str, Callable[[RetrievalReply], BaseModel]] = {"chunks": _grades, "recall": _verdicts}


def _render(given: RetrievalInput, code: str) -> str:
    claims = numbered_section("claims", given.claims)
    return fenced(code, [("question", [given.question]), *chunk_sections(given.chunks), claims])
