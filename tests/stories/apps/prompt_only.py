"""One call of OpenAI's client, with the passages fenced in the prompt: nothing says what retrieves."""

import sys

from openai import OpenAI

import ragtrace

ragtrace.instrument(service_name="support-bot")

PROMPT = """Answer from these passages only.

<passage id="warranty-length">
The warranty on every lamp lasts 24 months. It starts on the day of delivery.
</passage>
<passage id="shipping-cost">
Shipping costs 4 euros. Orders above 60 euros ship for free.
</passage>

Question: {question}"""

completion = OpenAI().chat.completions.create(
    model="gpt-4.1-mini", messages=[{"role": "user", "content": PROMPT.format(question=sys.argv[1])}]
)
print(completion.choices[0].message.content)
