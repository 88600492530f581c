"""The resource of ragtrace's own provider."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.resources import Resource

from ragtrace.capture import pipeline


def test_it_is_the_sdk_s_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=search")
    given = {"service.name": "shop"}
    resource, sdk_s = pipeline.new_resource(given), Resource.create(given)
    assert resource.attributes["team"] == "search"
    assert resource == sdk_s
    assert hash(resource) == hash(sdk_s)
    assert {sdk_s: 1}[resource] == 1


def test_it_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pipeline.new_resource({})
    monkeypatch.setattr(Resource, "__hash__", lambda _: pytest.fail("the attributes are written again"))
    assert hash(resource) == hash(resource)
