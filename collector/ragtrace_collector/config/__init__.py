"""The collector's configuration: one YAML file."""

from ragtrace_collector.config.load import (
    default_config_text,
    load_config,
    load_sampling,
    parse_config,
    schema_text,
)
from ragtrace_collector.config.sections import (
    AssembleConfig,
    AttachConfig,
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
from ragtrace_collector.config.values import ReceiveTlsConfig, TlsConfig, TokenConfig, TokenLimitsConfig
