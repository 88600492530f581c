"""The drift check, as metrics and on the status page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragtrace.drift.runs import DriftState, RunResult
from ragtrace_collector.operations._instruments import Measurement


def drift_readings(state: DriftState) -> Mapping[str, Sequence[Measurement]]:
    """Return the values of the metrics. Before the first complete run, there is neither score nor verdict."""
    last, runs, changes = state.last, state.runs or {}, state.model_changes or {}
    agreed, labeled = last.agreement() if last else (0, 0)
    means = last.means() if last else {}
    return {
        "ragtrace.drift.score": tuple(
            Measurement(mean, {"gen_ai.evaluation.name": metric}) for metric, mean in means.items()
        ),
        "ragtrace.drift.agreement": (Measurement(agreed / labeled),) if labeled else (),
        "ragtrace.drift.detected": (Measurement(int(state.is_drifted)),) if last else (),
        "ragtrace.drift.runs": tuple(
            Measurement(runs.get(result, 0), {"result": str(result)}) for result in RunResult
        ),
        "ragtrace.judge.model_changes": tuple(
            Measurement(number, {"gen_ai.request.model": model}) for model, number in changes.items()
        ),
    }


def drift_status(state: DriftState) -> Mapping[str, object]:
    """Return what the status page says."""
    last = state.last
    agreed, labeled = last.agreement() if last else (0, 0)
    return {
        "detected": state.is_drifted if last else None,
        "since_ns": state.since_ns if state.is_drifted else None,
        "judged": last.judged if last else 0,
        "anchors": last.anchors if last else 0,
        "agreed": agreed,
        "labeled": labeled,
        "model_changes": dict(state.model_changes or {}),
        "marks": [{"at_ns": at_ns, "what": what} for at_ns, what in state.marks],
    }
