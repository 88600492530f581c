"""Judges, embedders and batches behind OpenAI's API, which many servers speak. The client is OpenAI's SDK.

`judge` opens ``openai:MODEL``, `azure` opens ``azure:DEPLOYMENT``, `embedder` the embedders of both, `batch`
the judge that asks in batches. `dialect` is what a server accepts.
"""
