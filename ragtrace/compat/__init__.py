"""Other tools' metrics, under their own rules: as scorings of our verdicts, or with their own calls."""

from ragtrace.compat.profile_metric import ProfileMetric
from ragtrace.compat.tool import ToolCalls, ToolMetric, ToolOptions, ToolRun
from ragtrace.compat.tool_metric import ToolPrompted
from ragtrace.compat.tools import PROFILES, tool_metrics, tool_named
