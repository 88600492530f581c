"""Numbered sentences of a text: the public door of [`ragtrace.sentences`][ragtrace.sentences]."""

from ragtrace.sentences import Sentence, split_sentences

__all__ = ["Sentence", "split_sentences"]
