"""The chain of examples/frameworks, streamed."""

import sys

from langchain_app import chain

import ragtrace

ragtrace.instrument(service_name="support-bot")

for piece in chain().stream(sys.argv[1]):
    print(piece, end="", flush=True)
