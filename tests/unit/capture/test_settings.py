"""Code goes before the environment, and it before the default; the resource of an own provider."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.capture.instrumentation import resolve


@pytest.mark.parametrize(
    ("env", "code", "protocol", "endpoint"),
    [
        ({}, {}, "grpc", None),
        ({}, {"endpoint": "localhost:4317"}, "grpc", "http://localhost:4317"),
        ({}, {"endpoint": "http://host:4318"}, "http/protobuf", "http://host:4318/v1/traces"),
        ({}, {"endpoint": "https://host/v1/traces"}, "http/protobuf", "https://host/v1/traces"),
        (
            {},
            {"endpoint": "https://host/otlp/", "protocol": "http/protobuf"},
            "http/protobuf",
            "https://host/otlp/v1/traces",
        ),
        ({}, {"endpoint": "http://host:4318", "protocol": "grpc"}, "grpc", "http://host:4318"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, {}, "http/protobuf", None),
        (
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
            },
            {},
            "grpc",
            None,
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://host:4318"}, {}, "http/protobuf", None),
    ],
)
def test_protocol_and_endpoint(
    env: dict[str, str], code: dict[str, Any], protocol: str, endpoint: str | None
) -> None:
    settings = resolve(env, **code)
    assert (settings.protocol, settings.endpoint) == (protocol, endpoint)


@pytest.mark.parametrize(
    ("env", "disabled"),
    [
        ({}, False),
        ({"RAGTRACE_DISABLED": "TRUE"}, True),
        ({"OTEL_SDK_DISABLED": "true"}, True),
    ],
)
def test_the_environment_switches_it_off(env: dict[str, str], disabled: bool) -> None:
    assert resolve(env).disabled is disabled


@pytest.mark.parametrize(
    ("env", "code", "exports"),
    [
        ({}, {}, True),
        ({"OTEL_TRACES_EXPORTER": "none"}, {}, False),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, {}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, {"endpoint": "http://host:4317"}, True),
    ],
)
def test_none_exports_nothing(env: dict[str, str], code: dict[str, Any], exports: bool) -> None:
    assert resolve(env, **code).exports == exports


def test_libraries_are_chosen_by_code_else_by_the_environment() -> None:
    env = {"RAGTRACE_ONLY": "openai, qdrant", "RAGTRACE_EXCLUDE": "qdrant"}
    for code, only in (({}, {"openai", "qdrant"}), ({"only": "openai"}, {"openai"}), ({"only": []}, set())):
        settings = resolve(env, **code)
        assert (settings.only, settings.exclude) == (only, {"qdrant"}), code
