"""An answer that OpenAI streams, over a retriever written by hand.

    python examples/frameworks/openai_streaming.py "When does a refund reach my account?"

The one line captures the stream. ``@ragtrace.rag`` marks the call as a whole, until its last word, and
``handbook.py`` its retriever: in code written by hand, no library can know which functions these are.
"""

import sys
from collections.abc import Iterator

from handbook import prompt, search
from openai import OpenAI

import ragtrace


@ragtrace.rag
def stream(question: str) -> Iterator[str]:
    chunks = OpenAI().chat.completions.create(
        model="gpt-4.1-mini",
        messages=[
            {"role": "system", "content": prompt(search(question))},
            {"role": "user", "content": question},
        ],
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in chunks:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def ask(question: str) -> str:
    return "".join(stream(question))


if __name__ == "__main__":
    ragtrace.instrument(service_name="openai-streaming")
    for word in stream(" ".join(sys.argv[1:]) or "When does a refund reach my account?"):
        print(word, end="", flush=True)
    print()
