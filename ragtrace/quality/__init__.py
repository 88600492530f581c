"""What a sample of judged answers says about all traffic: estimates with intervals, by group."""

from ragtrace.quality.as_json import report_as_json
from ragtrace.quality.collecting import AnswerCollector, DisputeCount, ReportDimension, source_of
from ragtrace.quality.report import (
    Comparison,
    EffortFigures,
    GroupFigures,
    LedgerCoverage,
    MeasuredJudge,
    MetricFigures,
    PredictedFigures,
    QualityReport,
    ReportRequest,
    ReviewedFigures,
    ReviewedPairs,
    quality_report,
)
