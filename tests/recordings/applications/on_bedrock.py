"""Applications on Amazon Bedrock."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import Application, plain_search

__all__ = ["bedrock"]

_MODEL = "anthropic.claude-sonnet-5-v1"


def bedrock() -> Application:
    """Bedrock's Converse over a retriever written by hand."""
    handbook = import_module("handbook")

    def ask(question: str) -> str:
        reply = _client().converse(
            modelId=_MODEL,
            system=[{"text": handbook.prompt(handbook.search(question))}],
            messages=[{"role": "user", "content": [{"text": question}]}],
        )
        return str(reply["output"]["message"]["content"][0]["text"])

    return Application(
        question="How long do repairs take?",
        prepare=handbook.index,
        ask=ask,
        chunks=plain_search,
        model=_MODEL,
        is_rooted=False,
    )


@functools.cache
def _client() -> Any:
    import boto3

    return boto3.client(
        "bedrock-runtime",
        region_name="eu-central-1",
        endpoint_url=os.environ["ANTHROPIC_BASE_URL"],
        aws_access_key_id="not-a-key",
        aws_secret_access_key="not-a-key",
    )
