"""Writes a software bill of materials (CycloneDX 1.6, JSON) from requirements.lock and docs/licences.md.

The same lock gives the same file, byte by byte: it has no time and no place of its own. What `pip install millstream`
brings is `required`, what extras bring is `optional`, tools of development are `excluded`. Usage: python
scripts/sbom.py FILE
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import licences
from locked import normal, packages

ROOT = Path(__file__).parents[1]
_NAMESPACE = uuid.UUID("6f1b7a52-9a55-4c1c-8a3f-0f7b53a9c1d2")


def version() -> str:
    """The version that the code has."""
    text = (ROOT / "millstream" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def _purl(name: str, number: str) -> str:
    return f"pkg:pypi/{normal(name)}@{number}"


def _licence(told: str) -> list[dict[str, Any]]:
    """As an expression if it is one of SPDX's, else as a name.

    >>> _licence("MIT OR Apache-2.0"), _licence("BSD")
    ([{'expression': 'MIT OR Apache-2.0'}], [{'license': {'name': 'BSD'}}])
    """
    plain = {"BSD", "PSF", "not stated"}
    words = re.split(r" (?:AND|OR|WITH) |[()]", told)
    known = all(re.fullmatch(r"\s*[A-Za-z0-9.+-]*\s*", word) for word in words)
    if known and told not in plain:
        return [{"expression": told}]
    return [{"license": {"name": told}}]


def bill() -> dict[str, Any]:
    """The whole document."""
    scopes = {"always": "required", "development": "excluded"}
    told = licences.rows()
    components = []
    for package in packages():
        licence, use = told[normal(package.name), package.version]
        reference = _purl(package.name, package.version)
        properties = [{"name": "millstream:needed-by", "value": use}]
        if package.marker:
            properties.append({"name": "millstream:marker", "value": package.marker})
        hashes = [{"alg": "SHA-256", "content": digest} for digest in package.hashes]
        components.append(
            {
                "type": "library",
                "bom-ref": reference,
                "name": package.name,
                "version": package.version,
                "scope": scopes.get(use, "optional"),
                "licenses": _licence(licence),
                "purl": reference,
                # One hash for each file of the release: which of them is installed depends on the machine.
                "externalReferences": [
                    {"type": "distribution", "url": reference, "hashes": hashes}
                ],
                "properties": properties,
            }
        )
    root = _purl("millstream", version())
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": "millstream",
                "version": version(),
                "licenses": [{"expression": "Apache-2.0"}],
                "purl": root,
            }
        },
        "components": components,
        "dependencies": [
            {
                "ref": root,
                "dependsOn": [
                    component["bom-ref"]
                    for component in components
                    if component["scope"] != "excluded"
                ],
            }
        ],
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(document, sort_keys=True))
    return {**document, "serialNumber": f"urn:uuid:{serial}"}


def main(arguments: list[str]) -> int:
    """Write the file that is named."""
    (target,) = arguments
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    document = bill()
    Path(target).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    print(f"{target}: {len(document['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
