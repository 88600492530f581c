"""The resource of the collector's own metrics and spans."""

from __future__ import annotations

import functools
import uuid
from importlib.metadata import version

from opentelemetry.sdk.resources import OTELResourceDetector, Resource


@functools.cache
def own_resource() -> Resource:
    """Return the resource of this process. Standard variables such as OTEL_SERVICE_NAME take precedence."""
    own = Resource(
        {
            "service.name": "ragtrace-collector",
            "service.version": version("ragtrace-otel"),
            "service.instance.id": str(uuid.uuid4()),
        }
    )
    return own.merge(OTELResourceDetector().detect())
