"""The collector's configuration: one YAML file."""

from ragtrace_collector.config.reading import default_config_text, load_config, load_mapping, parse_config
from ragtrace_collector.config.sections import (
    AlwaysConfig,
    AssembleConfig,
    AttachConfig,
    CacheConfig,
    CollectorConfig,
    EvaluateConfig,
    ExportConfig,
    ExtractConfig,
    JudgeConfig,
    MappingConfig,
    MetricConfig,
    ReceiveConfig,
    SampleConfig,
    SecondJudgeConfig,
    StoreConfig,
    TelemetryConfig,
)

__all__ = [
    "AlwaysConfig",
    "AssembleConfig",
    "AttachConfig",
    "CacheConfig",
    "CollectorConfig",
    "EvaluateConfig",
    "ExportConfig",
    "ExtractConfig",
    "JudgeConfig",
    "MappingConfig",
    "MetricConfig",
    "ReceiveConfig",
    "SampleConfig",
    "SecondJudgeConfig",
    "StoreConfig",
    "TelemetryConfig",
    "default_config_text",
    "load_config",
    "load_mapping",
    "parse_config",
]
