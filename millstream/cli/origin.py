"""What to type to get this Millstream once more, and what its extras bring: nothing that no index has.

Whoever has installed it from a folder, a wheel or a repository gets it from there again (PEP 610 notes where that was);
an extra is named by its packages.
"""

from __future__ import annotations

import json
import re
from importlib import metadata

from millstream import __version__

__all__ = ["brought_by", "requirement"]


def requirement() -> str:
    """This Millstream, as a line of a requirements.txt."""
    return _requirement(_noted("direct_url.json"))


def _requirement(noted: str | None) -> str:
    """As above; `noted` is what the installer wrote down.

    >>> _requirement('{"url": "file:///home/me/millstream", "dir_info": {"editable": true}}')
    'millstream @ file:///home/me/millstream'
    >>> _requirement(
    ...     '{"url": "https://host/m.git", "vcs_info": {"vcs": "git", "commit_id": "4f2a"}}'
    ... )
    'millstream @ git+https://host/m.git@4f2a'
    """
    if noted is None:
        # It came from an index.
        return f"millstream>={__version__}"
    facts = json.loads(noted)
    source = facts.get("vcs_info")
    if source is None:
        return f"millstream @ {facts['url']}"
    return f"millstream @ {source['vcs']}+{facts['url']}@{source['commit_id']}"


def _noted(name: str) -> str | None:
    try:
        return metadata.distribution("millstream").read_text(name)
    except metadata.PackageNotFoundError:
        return None


def brought_by(extra: str) -> list[str]:
    """The requirements that an extra adds.

    >>> brought_by("lmdb")
    ['lmdb>=1.5']
    """
    try:
        required = metadata.requires("millstream") or []
    except metadata.PackageNotFoundError:
        required = []
    marker = re.compile(rf"\s*;\s*extra\s*==\s*['\"]{re.escape(extra)}['\"]\s*$")
    return [marker.sub("", line) for line in required if marker.search(line)]
