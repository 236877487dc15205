"""Writes millstream/rest/openapi.json: the paths of the REST API, from the table that requests are routed by.

Usage: python scripts/openapi.py [--check]
"""

from __future__ import annotations

import json
import sys

import written_page

from millstream.rest.openapi import openapi


def page() -> str:
    """The whole file."""
    return json.dumps(openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(written_page.main("../millstream/rest/openapi.json", page()))
