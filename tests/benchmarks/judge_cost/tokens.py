"""Counts the o200k tokens of texts on stdin (a JSON list of lists), in an interpreter that has tiktoken.

litellm carries tiktoken's tables; where it is not installed, tiktoken loads them from the network.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

if found := importlib.util.find_spec("litellm"):
    tables = Path(found.origin or "").parent / "litellm_core_utils" / "tokenizers"
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(tables))

import tiktoken

encoding = tiktoken.get_encoding("o200k_base")
texts: list[list[str]] = json.load(sys.stdin)
print(
    json.dumps([sum(len(encoding.encode(text, disallowed_special=())) for text in group) for group in texts])
)
