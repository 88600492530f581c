"""Other tools' metrics under their rules: their scoring of ragtrace's verdicts, or their own judge calls."""

from ragtrace.compat.profile_metric import ProfileMetric
from ragtrace.compat.tool import ToolCalls, ToolMetric, ToolOptions, ToolRun
from ragtrace.compat.tool_metric import PROFILES, ToolPrompted, tool_metrics, tool_named
