"""The application of prompt_only.py without its line."""

import sys

from openai import OpenAI

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
