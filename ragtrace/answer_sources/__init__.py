"""Where answers are opened and found without a collector: stores, back ends, files and reports."""

from ragtrace.answer_sources.search import SearchProgress, find_answers
from ragtrace.answer_sources.sources import KeptAnswer, KeptAnswers, first_of, open_source, store_source
