"""Anthropic's messages over a retriever written by hand.

    python examples/frameworks/anthropic_app.py "How long do repairs take?"

The one line captures the message. ``@ragtrace.rag`` marks the call as a whole, and ``handbook.py`` its
retriever: in code written by hand, no library can know which functions these are.
"""

import sys

from anthropic import Anthropic
from handbook import prompt, search

import ragtrace


@ragtrace.rag
def ask(question: str) -> str:
    message = Anthropic().messages.create(
        model="claude-sonnet-5",
        max_tokens=500,
        system=prompt(search(question)),
        messages=[{"role": "user", "content": question}],
    )
    return message.content[0].text


if __name__ == "__main__":
    ragtrace.instrument(service_name="anthropic-app")
    print(ask(" ".join(sys.argv[1:]) or "How long do repairs take?"))
