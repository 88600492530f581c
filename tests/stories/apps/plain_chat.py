"""A chat without a passage: there is nothing to judge its answer by."""

import sys

from openai import OpenAI

import ragtrace

ragtrace.instrument(service_name="support-bot")

completion = OpenAI().chat.completions.create(
    model="gpt-4.1-mini", messages=[{"role": "user", "content": sys.argv[1]}]
)
print(completion.choices[0].message.content)
