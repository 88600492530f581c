"""The resource of ragtrace's own provider."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource


class ReusedResource(Resource):
    """A resource that is hashed once. The SDK's writes all attributes as JSON each time, and its exporters
    group spans by resource: a fortieth of the samples in a profile of recording and sending a call.
    """

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.attributes, resource.schema_url)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def new_resource(given: Mapping[str, str]) -> Resource:
    """Return the resource of these attributes, of ``OTEL_RESOURCE_ATTRIBUTES`` and of the detectors."""
    return ReusedResource(Resource.create(given))
