"""The middle of ragtrace: a record becomes an evaluation, and an evaluation a carrier.

Live traffic, back-fill, rejudging and `ragtrace evaluate` all go through it:

- `ragtrace.pipeline.evaluator`: the settings of an evaluator, from YAML, options or Python.
- `ragtrace.pipeline.evaluator`: an opened evaluator, a value with its set and its version.
- `ragtrace.pipeline.evaluation`: how the metrics evaluate a record.
- `ragtrace.pipeline.carriers`: when an evaluation gets a carrier, and which one that supersedes.
"""

from ragtrace.pipeline.evaluator import Evaluator, EvaluatorSpec, MetricSpec, VerifySpec

__all__ = ["Evaluator", "EvaluatorSpec", "MetricSpec", "VerifySpec"]
