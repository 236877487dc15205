"""`millstream savepoint`: what is inside one, and take one of a running job."""

from __future__ import annotations

import json
from typing import Any

import click

from millstream.cli.jobs import asked_of, checkpoint_dir_option, timeout_option
from millstream.cli.program import guarded
from millstream.cli.session_option import session_option
from millstream.cli.terminal import echo, on_one_line
from millstream.storage.storage import stable

__all__ = ["savepoint"]


@click.group()
def savepoint() -> None:
    """Look into savepoints and take them."""


@savepoint.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--hmac-key-file", metavar="FILE", help="Refuse what is not signed with this key.")
def show(path: str, as_json: bool, hmac_key_file: str | None) -> None:
    """List what is inside a savepoint or checkpoint.

    \b
    millstream savepoint show /savepoints/savepoint-4f2a91-77e0
    """
    from millstream.state.reader import open_savepoint

    with guarded(traceback_wanted=False):
        content = savepoint_content(open_savepoint(path, hmac_key_file=hmac_key_file))
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    echo(
        f"{'savepoint' if content['savepoint'] else 'checkpoint'} {content['epoch']} of '{on_one_line(content['job'])}'"
    )
    echo(f"job id {content['job_id']}, {content['bytes']:,} bytes in {content['files']} files")
    for operator in content["operators"]:
        echo(
            f"\n{on_one_line(operator['name'])}  (uid {on_one_line(operator['uid'])},"
            f" parallelism {operator['parallelism']} of at most {operator['max_parallelism']})"
        )
        for state in operator["states"]:
            kind = " with time-to-live" if state.get("ttl") else ""
            echo(
                f"  {on_one_line(state['name'])}: {state['kind']} state{kind}, {state.get('type') or 'pickled'}"
            )
        if operator["splits"]:
            count = operator["splits"]
            echo(f"  {count} split{'s' if count != 1 else ''} read")
        if operator["fed_back"]:
            echo(f"  {operator['fed_back']} records fed back, to be read")


def savepoint_content(reader: Any) -> dict[str, Any]:
    """What a savepoint holds, as plain data."""
    manifest = reader.manifest
    files = {
        file.name: file.size
        for store in manifest.stores.values()
        for segments in (store.segments, *(parent.segments for parent in store.parents))
        for file in segments
    }
    return {
        "epoch": manifest.epoch,
        "job": manifest.job_name,
        "job_id": manifest.job_id,
        "savepoint": manifest.savepoint,
        "files": len(files),
        "bytes": sum(files.values()),
        "operators": [
            {
                "uid": uid,
                "name": info.name,
                "parallelism": info.parallelism,
                "max_parallelism": info.max_parallelism,
                "states": [{"name": name, **state} for name, state in info.states.items()],
                "splits": len(manifest.offsets.get(uid, {})),
                "fed_back": sum(file.records for file in manifest.feedback.get(uid, ())),
            }
            for uid, info in manifest.operators.items()
            if info.states or uid in manifest.offsets or manifest.feedback.get(uid)
        ],
    }


@savepoint.command()
@click.argument("path")
@click.argument("target")
@click.option(
    "--hmac-key-file", metavar="FILE", required=True, help="The key that the copy is signed with."
)
@click.option("--signed-with", metavar="FILE", help="The key that PATH is signed with, if it is.")
def sign(path: str, target: str, hmac_key_file: str, signed_with: str | None) -> None:
    """Copy a savepoint or checkpoint and sign the copy, for a job with millstream.state.hmac-key-file.

    Whoever signs vouches for the content: it is not looked at.

    \b
    millstream savepoint sign --hmac-key-file job.key /checkpoints/count/chk-12 /savepoints/signed
    """
    from millstream.checkpoint.savepoint import sign_savepoint
    from millstream.storage.seal import Seal

    with guarded(traceback_wanted=False):
        seal = Seal.of(hmac_key_file)
        assert seal is not None
        written = sign_savepoint(path, target, seal, Seal.of(signed_with))
    echo(f"Savepoint signed. Path: {written}")


@savepoint.command()
@click.argument("job")
@click.argument("folder", required=False)
@checkpoint_dir_option
@session_option
@timeout_option
def trigger(
    job: str, folder: str | None, directory: str | None, session: str, timeout: float
) -> None:
    """Take a savepoint of a running job, which goes on.

    \b
    millstream savepoint trigger "word count" /savepoints
    millstream savepoint trigger --dir /checkpoints "word count" /savepoints
    """
    with guarded(traceback_wanted=False):
        target = None if folder is None else stable(folder)
        path = asked_of(job, directory, session, "savepoint", path=target, timeout=timeout)
    echo(f"Savepoint completed. Path: {path}")
