"""Old module paths and names of the library, which work for one release with a ``DeprecationWarning``.

`MODULES` maps an old module to the new one. `NAMES` maps, for each new module, its old names to the new ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

MODULES: Final = {
    "ragtrace.asked_wait": "ragtrace._retry_after",
    "ragtrace.backends.jaeger_grpc": "ragtrace.backends._jaeger_grpc",
    "ragtrace.backends.jaeger_v2": "ragtrace.backends._jaeger_v2",
    "ragtrace.backends.langfuse_scores": "ragtrace.backends._langfuse_scores",
    "ragtrace.backends.otlp_file_reader": "ragtrace.backends._otlp_file_reader",
    "ragtrace.backends.otlp_framing": "ragtrace.backends._otlp_framing",
    "ragtrace.backends.patience": "ragtrace.backends.read_retries",
    "ragtrace.backends.phoenix_annotations": "ragtrace.backends._phoenix_annotations",
    "ragtrace.backends.posting": "ragtrace.backends._http_sink",
    "ragtrace.backends.scores": "ragtrace.backends._scores",
    "ragtrace.backends.unlisted": "ragtrace.backends._listing",
    "ragtrace.backends.web": "ragtrace.backends.http_api",
    "ragtrace.backends.windows": "ragtrace.backends.search_windows",
    "ragtrace.backfill.choosing": "ragtrace.backfill._record_selection",
    "ragtrace.backfill.estimate": "ragtrace.backfill._estimate",
    "ragtrace.backfill.finding": "ragtrace.backfill._trace_search",
    "ragtrace.backfill.judging": "ragtrace.backfill.evaluator",
    "ragtrace.backfill.purse": "ragtrace.backfill.run_budget",
    "ragtrace.backfill.rehearsal": "ragtrace.backfill.dry_run",
    "ragtrace.backfill.run": "ragtrace.backfill.resume",
    "ragtrace.backfill.running": "ragtrace.backfill.pipeline",
    "ragtrace.backfill.selection": "ragtrace.backfill._selection",
    "ragtrace.backfill.sizes": "ragtrace.backfill._token_load",
    "ragtrace.calibration.agreement": "ragtrace.calibration._agreement",
    "ragtrace.calibration.labelled": "ragtrace.calibration.labeled_data",
    "ragtrace.calibration.located": "ragtrace.calibration._claim_match",
    "ragtrace.calibration.measuring": "ragtrace.calibration.measurement",
    "ragtrace.calibration.saved": "ragtrace.metrics.calibration_file",
    "ragtrace.capture.answer": "ragtrace.capture._answer",
    "ragtrace.capture.guard": "ragtrace.capture._guard",
    "ragtrace.capture.hints": "ragtrace.capture._hints",
    "ragtrace.capture.libraries.imports": "ragtrace.capture.libraries._import_hooks",
    "ragtrace.capture.libraries.others": "ragtrace.capture.libraries._conflicts",
    "ragtrace.capture.libraries.table": "ragtrace.capture.libraries._table",
    "ragtrace.capture.privacy.detectors": "ragtrace.capture.privacy._detectors",
    "ragtrace.capture.privacy.digest": "ragtrace.capture.privacy._digest",
    "ragtrace.capture.privacy.redaction": "ragtrace.capture.privacy._redaction",
    "ragtrace.capture.recorder": "ragtrace.capture._recorder",
    "ragtrace.capture.recording": "ragtrace.capture._recording",
    "ragtrace.capture.span_queue": "ragtrace.capture._span_queue",
    "ragtrace.capture.watch": "ragtrace.capture._watch",
    "ragtrace.capture.wrapping": "ragtrace.capture._wrapping",
    "ragtrace.compat.deepeval_prompts": "ragtrace.compat._deepeval_prompts",
    "ragtrace.compat.deepeval_replies": "ragtrace.compat._deepeval_replies",
    "ragtrace.compat.material": "ragtrace.compat._material",
    "ragtrace.compat.peer": "ragtrace.compat.tool",
    "ragtrace.compat.peers": "ragtrace.compat.tools",
    "ragtrace.compat.profiled": "ragtrace.compat.profile_metric",
    "ragtrace.compat.promptfoo_prompts": "ragtrace.compat._promptfoo_prompts",
    "ragtrace.compat.rag_evals_prompts": "ragtrace.compat._rag_evals_prompts",
    "ragtrace.compat.ragas_measures": "ragtrace.compat._ragas_measures",
    "ragtrace.compat.ragas_prompts": "ragtrace.compat._ragas_prompts",
    "ragtrace.compat.ragas_readings": "ragtrace.compat._ragas_readings",
    "ragtrace.compat.ragas_replies": "ragtrace.compat._ragas_replies",
    "ragtrace.compat.running": "ragtrace.compat.tool_metric",
    "ragtrace.durable": "ragtrace.files.durable",
    "ragtrace.faults": "ragtrace.validation",
    "ragtrace.harmless": "ragtrace.escaping",
    "ragtrace.in_order": "ragtrace._ordered",
    "ragtrace.installing": "ragtrace.extras",
    "ragtrace.judge.batch_api": "ragtrace.judge._batch_api",
    "ragtrace.judge.batch_lane": "ragtrace.judge._batch_lane",
    "ragtrace.judge.batch_log": "ragtrace.judge._batch_log",
    "ragtrace.judge.batch_outcome": "ragtrace.judge._batch_outcome",
    "ragtrace.judge.cache_file": "ragtrace.judge._cache_file",
    "ragtrace.judge.completion": "ragtrace.judge._completion",
    "ragtrace.judge.dialect": "ragtrace.judge._dialect",
    "ragtrace.judge.endpoint": "ragtrace.judge._endpoint",
    "ragtrace.judge.exchange": "ragtrace.judge._exchange",
    "ragtrace.judge.http": "ragtrace.judge._http",
    "ragtrace.judge.llama_process": "ragtrace.judge._llama_process",
    "ragtrace.judge.metering": "ragtrace.judge._usage",
    "ragtrace.judge.opening": "ragtrace.judge.factory",
    "ragtrace.judge.pacing": "ragtrace.judge._adaptive_limit",
    "ragtrace.judge.place": "ragtrace.judge.base_url",
    "ragtrace.judge.retrying": "ragtrace.judge.retry",
    "ragtrace.judge.spending": "ragtrace.judge.spend",
    "ragtrace.judge.words": "ragtrace.judge._words",
    "ragtrace.metrics.asking": "ragtrace.metrics.judge_calls",
    "ragtrace.metrics.bundle": "ragtrace.metrics._combined_request",
    "ragtrace.metrics.claims": "ragtrace.metrics._claims",
    "ragtrace.metrics.context": "ragtrace.metrics._context",
    "ragtrace.metrics.each": "ragtrace.metrics._item_replies",
    "ragtrace.metrics.evidence": "ragtrace.metrics._evidence",
    "ragtrace.metrics.grades": "ragtrace.metrics._grades",
    "ragtrace.metrics.lookalikes": "ragtrace.metrics._lookalikes",
    "ragtrace.metrics.own": "ragtrace.metrics.base",
    "ragtrace.metrics.planted_claims": "ragtrace.metrics._invented_claims",
    "ragtrace.metrics.sentinels": "ragtrace.metrics._canaries",
    "ragtrace.metrics.strangers": "ragtrace.metrics.plugin_validation",
    "ragtrace.metrics.verdicts": "ragtrace.metrics._verdicts",
    "ragtrace.metrics.verify_json": "ragtrace.metrics._verify_json",
    "ragtrace.outgoing": "ragtrace.http",
    "ragtrace.outgoing.answers": "ragtrace.http._body",
    "ragtrace.outgoing.clients": "ragtrace.http._clients",
    "ragtrace.outgoing.exporters": "ragtrace.http.exporters",
    "ragtrace.private_files": "ragtrace.files.private",
    "ragtrace.reports.answers": "ragtrace.outcomes",
    "ragtrace.reports.csv_cells": "ragtrace.reports._csv_cells",
    "ragtrace.reports.files": "ragtrace.reports._files",
    "ragtrace.reports.histogram": "ragtrace.reports._histogram",
    "ragtrace.reports.json_lines": "ragtrace.reports._json_lines",
    "ragtrace.reports.marks": "ragtrace.reports._marks",
    "ragtrace.reports.opening": "ragtrace.reports._formats",
    "ragtrace.reports.page": "ragtrace.reports._page",
    "ragtrace.reports.parquet": "ragtrace.reports._parquet",
    "ragtrace.reports.rows": "ragtrace.reports._rows",
    "ragtrace.reports.totals": "ragtrace.reports._totals",
    "ragtrace.reports.worst": "ragtrace.reports._worst",
    "ragtrace.retry_after": "ragtrace._retry_after",
    "ragtrace.rows": "ragtrace._row_files",
    "ragtrace.sampling.comparison": "ragtrace.sampling._comparison",
    "ragtrace.sampling.position": "ragtrace.sampling._position",
    "ragtrace.scoring.given": "ragtrace.scoring._inputs",
    "ragtrace.scoring.grades": "ragtrace.scoring._grades",
    "ragtrace.scoring.passing": "ragtrace.scoring.pass_rule",
    "ragtrace.scoring.readings": "ragtrace.scoring.formulas",
    "ragtrace.state": "ragtrace.files.state",
    "ragtrace.testing.conformance": "ragtrace.testing._conformance",
    "ragtrace.testing.gates": "ragtrace.testing._gates",
    "ragtrace.testing.sinks": "ragtrace.testing._sinks",
    "ragtrace.tls": "ragtrace.http.tls",
    "ragtrace.traces.extract.attributes": "ragtrace.traces.extract._attributes",
    "ragtrace.traces.extract.calls": "ragtrace.traces.extract._calls",
    "ragtrace.traces.extract.content": "ragtrace.traces.extract._content",
    "ragtrace.traces.extract.context": "ragtrace.traces.extract._context",
    "ragtrace.traces.extract.documents": "ragtrace.traces.extract._documents",
    "ragtrace.traces.extract.flattened": "ragtrace.traces.extract._flat_lists",
    "ragtrace.traces.extract.mapping": "ragtrace.traces.extract._mapping",
    "ragtrace.traces.extract.messages": "ragtrace.traces.extract._messages",
    "ragtrace.traces.extract.missing": "ragtrace.traces.extract._missing",
    "ragtrace.traces.extract.nesting": "ragtrace.traces.extract._nesting",
    "ragtrace.traces.extract.parting": "ragtrace.traces.extract._passage_split",
    "ragtrace.traces.extract.passages": "ragtrace.traces.extract._passages",
    "ragtrace.traces.extract.passed_over": "ragtrace.traces.extract._alternatives",
    "ragtrace.traces.extract.payload": "ragtrace.traces.extract._payload",
    "ragtrace.traces.extract.prompted": "ragtrace.traces.extract._prompt_context",
    "ragtrace.traces.extract.prompts": "ragtrace.traces.extract._prompts",
    "ragtrace.traces.extract.reading": "ragtrace.traces.extract._span_reader",
    "ragtrace.traces.extract.references": "ragtrace.traces.extract._references",
    "ragtrace.traces.extract.rules": "ragtrace.traces.extract._rules",
    "ragtrace.traces.extract.streams": "ragtrace.traces.extract._streams",
    "ragtrace.traces.extract.switches": "ragtrace.traces.extract._switches",
    "ragtrace.traces.extract.tools": "ragtrace.traces.extract._tools",
    "ragtrace.traces.text": "ragtrace.traces._text",
    "ragtrace.transcripts.asking": "ragtrace.transcripts._reevaluation",
    "ragtrace.transcripts.comparing": "ragtrace.transcripts._comparison",
    "ragtrace.transcripts.differences": "ragtrace.transcripts._differences",
    "ragtrace.transcripts.judges": "ragtrace.transcripts._judges",
    "ragtrace.transcripts.pairing": "ragtrace.transcripts._pairs",
    "ragtrace.transcripts.rescoring": "ragtrace.transcripts.rescore",
    "ragtrace.transcripts.values": "ragtrace.transcripts._values",
    "ragtrace.waiting": "ragtrace.sync",
}
NAMES: Final = {
    "ragtrace.judge": {"Pace": "AdaptiveLimiter", "pace_of": "limiter_of", "paced": "adaptively_limited"},
    "ragtrace.metrics": {"Finding": "MetricFinding", "OwnMetric": "BuiltInMetric"},
    "ragtrace._row_files": {"Names": "FieldNames"},
    "ragtrace.backends._http_sink": {"Poster": "HttpSender", "PostingSink": "HttpSink"},
    "ragtrace.backends._listing": {"Unlisted": "SearchOnlyReader"},
    "ragtrace.backends._otlp_framing": {"Piece": "OtlpFrame"},
    "ragtrace.backends._scores": {"KeptScore": "StoredScore"},
    "ragtrace.backends.http_api": {
        "Access": "ConnectionSettings",
        "WebAnswer": "HttpResponse",
        "WebApi": "HttpApi",
    },
    "ragtrace.backends.read_retries": {"Patience": "ReadRetries"},
    "ragtrace.backends.search_windows": {"Window": "SearchWindow"},
    "ragtrace.backfill._estimate": {
        "Estimate": "RunEstimate",
        "Interval": "EstimateRange",
        "Observed": "PilotRecord",
        "Sizes": "TotalLoad",
    },
    "ragtrace.backfill._record_selection": {"Candidate": "SelectedRecord"},
    "ragtrace.backfill._token_load": {
        "Load": "TokenLoad",
        "Manner": "ReplyProfile",
        "Unsized": "UnknownLoad",
    },
    "ragtrace.backfill.dry_run": {"Rehearsal": "DryRun", "rehearse": "dry_run"},
    "ragtrace.backfill.evaluator": {
        "Judged": "EvaluatedRecord",
        "Judging": "BackfillEvaluator",
        "Parcel": "OutgoingCarrier",
    },
    "ragtrace.backfill.report": {"Ledger": "RunCounts"},
    "ragtrace.backfill.resume": {"Run": "ResumableRun"},
    "ragtrace.backfill.run_budget": {"RunPurse": "RunBudget"},
    "ragtrace.calibration._agreement": {
        "Bin": "ScoreBin",
        "Counts": "ConfusionCounts",
        "Scored": "ScoredAnswer",
    },
    "ragtrace.calibration._claim_match": {"Found": "ClaimMatch"},
    "ragtrace.calibration.intervals": {"Estimate": "IntervalEstimate"},
    "ragtrace.calibration.labeled_data": {"LabelledAnswer": "LabeledAnswer"},
    "ragtrace.calibration.measurement": {
        "Candidate": "JudgeCandidate",
        "Measured": "MeasuredAnswer",
        "Run": "CandidateRun",
    },
    "ragtrace.calibration.results": {"Cut": "ScoreCutoff", "Lead": "AccuracyLead", "Level": "AgreementLevel"},
    "ragtrace.calibration.summary": {"Plan": "MeasurementPlan"},
    "ragtrace.capture._watch": {"Watch": "RagCallWatch"},
    "ragtrace.capture.libraries._table": {"Kind": "InstrumentorKind"},
    "ragtrace.capture.libraries.instrumentors": {"Instrumented": "InstrumentedLibraries"},
    "ragtrace.capture.pipeline": {"Counts": "ExportCounts", "Outlet": "ExportSwitch"},
    "ragtrace.capture.privacy._detectors": {"Finding": "DetectedValue", "Kind": "DetectorKind"},
    "ragtrace.capture.privacy.policy": {"Passage": "ContentFilter"},
    "ragtrace.capture.values.documents": {"Found": "FoundDocument"},
    "ragtrace.capture.values.plain": {"Plain": "JsonValue"},
    "ragtrace.compat._deepeval_replies": {"Unreadable": "DeepEvalUnreadable"},
    "ragtrace.compat._ragas_measures": {"Asking": "MeasureRun"},
    "ragtrace.compat._ragas_replies": {"Unreadable": "RagasUnreadable"},
    "ragtrace.compat.profile_metric": {"Profiled": "ProfileMetric"},
    "ragtrace.compat.tool": {
        "PeerCalls": "ToolCalls",
        "PeerMetric": "ToolMetric",
        "PeerOptions": "ToolOptions",
        "PeerRun": "ToolRun",
    },
    "ragtrace.compat.tool_metric": {"PeerPrompted": "ToolPrompted"},
    "ragtrace.compat.tools": {"peer_metrics": "tool_metrics", "peer_named": "tool_named"},
    "ragtrace.http._body": {"Oversized": "BodyTooLarge", "Unreadable": "UnreadableBody"},
    "ragtrace.judge._adaptive_limit": {
        "Pace": "AdaptiveLimiter",
        "pace_of": "limiter_of",
        "paced": "adaptively_limited",
    },
    "ragtrace.judge._batch_outcome": {"Answers": "BatchReplies"},
    "ragtrace.judge._completion": {"Answer": "Completion"},
    "ragtrace.judge._dialect": {"Rung": "OutputMode"},
    "ragtrace.judge._endpoint": {"Posting": "Transport", "Rejected": "RequestRejected"},
    "ragtrace.judge._exchange": {"Kind": "ReplyKind"},
    "ragtrace.judge._llama_process": {"Serving": "LlamaServer"},
    "ragtrace.judge.base_url": {"Place": "BaseUrl"},
    "ragtrace.judge.calls": {
        "Asked": "CallRequest",
        "Call": "JudgeCall",
        "Doubts": "UsageDoubts",
        "Watcher": "CallObserver",
    },
    "ragtrace.judge.factory": {"Paced": "SelfLimited"},
    "ragtrace.judge.layers": {"Layer": "JudgeLayer"},
    "ragtrace.judge.spend": {
        "Bill": "RequestCost",
        "Book": "SpendLedger",
        "Tariff": "CostEstimator",
        "Turnstile": "ReservingSpender",
    },
    "ragtrace.metrics._canaries": {
        "Sentinel": "CanaryClaim",
        "Sentinels": "CanaryClaims",
        "check_sentinels": "check_canaries",
    },
    "ragtrace.metrics._claims": {"JudgedClaims": "ClaimVerdicts"},
    "ragtrace.metrics._context": {"Context": "NumberedContext"},
    "ragtrace.metrics._item_replies": {"Answers": "ItemReplies"},
    "ragtrace.metrics._verdicts": {"Ruling": "CheckedVerdict", "Rulings": "CheckedVerdicts"},
    "ragtrace.metrics._verify_json": {"JsonAsking": "JsonVerifier"},
    "ragtrace.metrics.base": {"Finding": "MetricFinding", "OwnMetric": "BuiltInMetric"},
    "ragtrace.metrics.extract": {"Extraction": "ClaimExtraction"},
    "ragtrace.metrics.judge_calls": {"Metered": "MeteredJudge"},
    "ragtrace.metrics.plugin_validation": {"fault_in": "problem_in"},
    "ragtrace.metrics.verify_yes_no": {"YesNoAsking": "YesNoVerifier"},
    "ragtrace.plugins": {"Openable": "PluginKind"},
    "ragtrace.outcomes": {"Standing": "AnswerOutcome"},
    "ragtrace.reports._histogram": {"Bar": "HistogramBar"},
    "ragtrace.reports._marks": {"Mark": "MarkedPassage", "Piece": "MarkedText"},
    "ragtrace.reports._totals": {"Bin": "HistogramBin"},
    "ragtrace.reports._worst": {"Worst": "WorstAnswers"},
    "ragtrace.reports.report": {"About": "RunInfo", "Ending": "RunEnd", "LeftOut": "SkippedAnswers"},
    "ragtrace.reports.tally": {"Tally": "MetricTally"},
    "ragtrace.sampling._comparison": {"Comparison": "ValueTest"},
    "ragtrace.scoring._inputs": {"Asked": "ScoringInput", "Given": "ScoringVerdicts"},
    "ragtrace.traces._carrier_events": {"Interval": "TimeRange"},
    "ragtrace.traces._carrier_verdicts": {"Chosen": "CarrierVerdicts", "Shown": "CarrierVerdict"},
    "ragtrace.traces.extract._content": {"Damage": "ContentDamage", "Found": "FoundValue"},
    "ragtrace.traces.extract._context": {"Context": "ExtractedContext"},
    "ragtrace.traces.extract._messages": {"Turn": "ChatTurn"},
    "ragtrace.traces.extract._prompt_context": {"Prompted": "PromptContext"},
    "ragtrace.traces.extract._span_reader": {"Reading": "SpanReading"},
    "ragtrace.traces.extract.extraction": {"Note": "ExtractionNote"},
    "ragtrace.transcripts._comparison": {"Comparing": "Comparer", "Comparison": "EvaluatorComparison"},
    "ragtrace.transcripts.file": {
        "Evaluator": "EvaluatorInfo",
        "Kept": "TranscriptRecord",
        "Said": "TranscriptReply",
    },
    "ragtrace.transcripts.rescore": {"Rescored": "RescoredRecord"},
}


def install() -> None:
    """Let imports find the old modules. Python asks this finder last, so other imports pay nothing for it."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())


def old_names(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module, which finds what had another name before."""

    def find(name: str) -> Any:
        new = NAMES.get(module, {}).get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name}", f"{module}.{new}")
        return getattr(import_module(module), new)

    return find


class _OldModules(MetaPathFinder):
    """Finds the modules that have moved."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        # a package, so that its old submodules are found too
        return ModuleSpec(fullname, _Alias(), is_package=True)


class _Alias(Loader):
    """Loads a module whose attributes are those of the one that took its place."""

    def exec_module(self, module: ModuleType) -> None:
        new = MODULES[module.__name__]
        renamed = NAMES.get(new, {})

        def find(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(import_module(new), renamed.get(name, name))

        module.__getattr__ = find  # type: ignore[method-assign]
        _warn(module.__name__, new)


def _warn(old: str, new: str) -> None:
    from warnings import warn

    warn(f"{old} is now {new}; the old name goes with the next release", DeprecationWarning, stacklevel=3)
