"""Other tools' metrics under their rules: their scoring of ragtrace's verdicts, or their own judge calls."""

from ragtrace.compat.tool import (
    PROFILES,
    ProfileMetric,
    ToolCalls,
    ToolMetric,
    ToolOptions,
    ToolPrompted,
    ToolRun,
    tool_metrics,
    tool_named,
)
