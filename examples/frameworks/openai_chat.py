"""OpenAI's chat completions over a retriever written by hand.

    python examples/frameworks/openai_chat.py "How long does the warranty last?"

The one line captures the chat. ``@ragtrace.rag`` marks the call as a whole, and ``handbook.py`` its
retriever: in code written by hand, no library can know which functions these are.
"""

import sys

from handbook import prompt, search
from openai import OpenAI

import ragtrace


@ragtrace.rag
def ask(question: str) -> str:
    completion = OpenAI().chat.completions.create(
        model="gpt-4.1-mini",
        messages=[
            {"role": "system", "content": prompt(search(question))},
            {"role": "user", "content": question},
        ],
    )
    return completion.choices[0].message.content


if __name__ == "__main__":
    ragtrace.instrument(service_name="openai-chat")
    print(ask(" ".join(sys.argv[1:]) or "How long does the warranty last?"))
