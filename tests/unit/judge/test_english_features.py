"""The features of English claims are those that the shipped model was trained and measured with."""

from __future__ import annotations

import hashlib
import json

from tests.checkout import ROOT
from tests.train_lexical import read_claims

SAMPLE = ROOT / "examples" / "data" / "ragtruth_qa_sample.jsonl"
DIGEST = "58b07a60f41c918c6edac1d6e6f5c9bfb3e5b6e8739c69370f9897d4c00b5561"
"""Of ``lexical-v4``. If it changes, train and measure the model again: its card is about other features."""


def test_english_features_are_those_of_the_trained_model() -> None:
    claims = read_claims(SAMPLE)
    features = [{name: f"{value:.9f}" for name, value in sorted(claim.features.items())} for claim in claims]
    found = json.dumps([features, [claim.may_be_supported for claim in claims]])
    assert len(claims) > 100
    assert hashlib.sha256(found.encode()).hexdigest() == DIGEST
