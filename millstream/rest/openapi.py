"""The description of the REST API, from the table of its routes. `openapi.json` beside this module is what it gives
(scripts/openapi.py writes it)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from millstream import __version__
from millstream.rest.routes import ROUTES, Endpoint

__all__ = ["openapi"]


def openapi() -> dict[str, Any]:
    """All paths, as OpenAPI 3.1 describes them."""
    paths: dict[str, dict[str, Any]] = {}
    bodies = [endpoint.body for endpoint in ROUTES if endpoint.body is not None]
    schemas, components = msgspec.json.schema_components(
        bodies, ref_template="#/components/schemas/{name}"
    )
    by_body = dict(zip(bodies, schemas, strict=True))
    for endpoint in ROUTES:
        path = re.sub(r":(\w+)", r"{\1}", endpoint.path)
        path = f"/flink{path}" if endpoint.page_only else path
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, by_body)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream",
            "version": __version__,
            "description": "Flink's REST API over the jobs of one driver. Every path also stands below /v1.",
            "license": {"name": "Apache-2.0"},
        },
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, bodies: dict[type, dict[str, Any]]) -> dict[str, Any]:
    in_path = re.findall(r":(\w+)", endpoint.path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in in_path
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in endpoint.query
    ]
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}"),
        "summary": endpoint.summary,
        "responses": {str(endpoint.status): {"description": endpoint.summary}},
    }
    if parameters:
        operation["parameters"] = parameters
    if in_path:
        operation["responses"]["404"] = {"description": "There is no such thing, or no more."}
    if endpoint.body is not None:
        operation["requestBody"] = {
            "content": {"application/json": {"schema": bodies[endpoint.body]}}
        }
    return operation
