"""What a sample of judged answers says about all traffic: estimates with intervals, by group."""

from ragtrace.quality.report import (
    AnswerCollector,
    DisputeCount,
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
    source_of,
)
from ragtrace.quality.wording import report_as_json
