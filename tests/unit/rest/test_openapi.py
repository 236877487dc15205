"""The description of the API is that of its routes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import millstream.rest
from millstream.rest.openapi import openapi
from millstream.rest.routes import ROUTES
from tests.rest import Client, application

FILE = Path(millstream.rest.__file__).parent / "openapi.json"


def test_the_file_is_up_to_date():
    assert json.loads(FILE.read_text()) == openapi(), "run python scripts/openapi.py"


def test_it_has_every_route_and_nothing_else():
    described = {
        (method.upper(), path)
        for path, methods in json.loads(FILE.read_text())["paths"].items()
        for method in methods
    }
    routed = {
        (e.method, ("/flink" if e.page_only else "") + re.sub(r":(\w+)", r"{\1}", e.path))
        for e in ROUTES
    }
    assert described == routed


def test_operations_have_names_of_their_own():
    names = [
        operation["operationId"]
        for methods in openapi()["paths"].values()
        for operation in methods.values()
    ]
    assert len(names) == len(set(names))


def test_it_is_served():
    answer = Client(application()).get("/openapi.json")
    assert answer.json == openapi()


def test_every_path_without_a_name_in_it_is_answered():
    client = Client(application())
    for endpoint in ROUTES:
        if endpoint.method == "GET" and ":" not in endpoint.path:
            for path in (endpoint.path, f"/v1{endpoint.path}"):
                assert client.get(path).status == 200, path
