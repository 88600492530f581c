"""OpenAI's responses over a retriever written by hand.

    python examples/frameworks/openai_responses.py "Who pays for the shipping of a return?"

The one line captures the response. ``@ragtrace.rag`` marks the call as a whole, and ``handbook.py`` its
retriever: in code written by hand, no library can know which functions these are.
"""

import sys

from handbook import prompt, search
from openai import OpenAI

import ragtrace


@ragtrace.rag
def ask(question: str) -> str:
    response = OpenAI().responses.create(
        model="gpt-4.1-mini", instructions=prompt(search(question)), input=question
    )
    return response.output_text


if __name__ == "__main__":
    ragtrace.instrument(service_name="openai-responses")
    print(ask(" ".join(sys.argv[1:]) or "Who pays for the shipping of a return?"))
