"""`millstream doctor`: is this machine fit to run Millstream, and if not, what to type.

Gathers the facts (`millstream.cli.facts`), has them judged (`millstream.cli.checks`) and prints the
findings; of a cluster, `millstream.cli.cluster`. With `--spark` it also runs a job, the only place outside
`millstream.spark` that imports pyspark.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from millstream.cli import checks, facts, origin
from millstream.cli.program import parse_settings

if TYPE_CHECKING:
    from millstream.cli.checks import Finding

__all__ = ["doctor", "examine"]

# extra: the distribution that it brings
_EXTRAS = {
    "lmdb": "lmdb",
    "postgres": "psycopg",
    "s3": "s3fs",
}
_BY_PYSPARK = "by PySpark"
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _python_findings() -> Iterator[Finding]:
    driver = tuple(sys.version_info[:3])
    setting = os.environ.get("PYSPARK_PYTHON")
    yield checks.check_python(driver, sys.executable, origin.requirement())
    worker = facts.python_version(setting) if setting else None
    yield checks.check_worker_python(driver, setting, worker)


def _package_findings() -> Iterator[Finding]:
    pyspark = facts.package("pyspark")
    yield checks.check_package("pyspark", pyspark, minimum="4.3", below="4.4")
    spark_home = os.environ.get("SPARK_HOME")
    unpacked = facts.spark_version(spark_home) if spark_home else None
    yield checks.check_spark_home(spark_home, unpacked, pyspark.version)
    pyarrow = facts.package("pyarrow")
    yield checks.check_package("pyarrow", pyarrow, minimum="18.0", why=_BY_PYSPARK)
    pandas = facts.package("pandas")
    yield checks.check_package("pandas", pandas, minimum="2.2", untested_from="3", why=_BY_PYSPARK)
    yield checks.check_package("cloudpickle", facts.package("cloudpickle"), minimum="3.0")


def _slots_finding() -> Finding:
    try:
        from millstream.spark.slots.usable import usable, workers_import_us

        can = usable() and workers_import_us(None)
    except ImportError:
        # Said above: PySpark is missing.
        can = False
    return checks.check_slots(usable=can)


def _machine_findings() -> Iterator[Finding]:
    yield checks.check_loopback(*facts.loopback_port())
    name = socket.gethostname()
    local_ip = os.environ.get("SPARK_LOCAL_IP")
    yield checks.check_hostname(name, facts.resolve(name), local_ip)
    yield checks.check_disk(*facts.free_disk())
    yield checks.check_memory(facts.available_memory())


def _run_spark_job() -> Finding:
    """Start a session, run a Python function over Arrow batches, check what comes out."""
    began = time.monotonic()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Everything happens on this machine, whatever its name resolves to.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        from pyspark.sql import SparkSession

        def double(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                values = [2 * value for value in batch.column(0).to_pylist()]
                yield pa.RecordBatch.from_pydict({"id": pa.array(values, pa.int64())})

        session = (
            SparkSession.builder.master("local[2]")
            .appName("millstream doctor")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        try:
            rows = session.range(100).mapInArrow(double, "id long").collect()
        finally:
            session.stop()
    except Exception as error:
        first = (str(error).strip() or "no message").splitlines()[0]
        return checks.check_spark_run(None, f"{type(error).__name__}: {first}")
    if sum(row.id for row in rows) != 9900:
        return checks.check_spark_run(None, "the job ran and its result is wrong")
    return checks.check_spark_run(time.monotonic() - began)


def examine(
    *, spark: bool = False, pipelined: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Every finding about this machine, one by one as it is made; and about the cluster that the settings name.

    >>> [finding.name for finding in examine()][:2]
    ['Java', 'Python']
    """
    java_home = os.environ.get("JAVA_HOME")
    yield checks.check_java(facts.find_java(java_home), java_home)
    yield from _python_findings()
    yield from _package_findings()
    yield _slots_finding()
    yield from _machine_findings()
    for extra, distribution in _EXTRAS.items():
        yield checks.check_extra(
            extra, distribution, facts.installed(distribution), origin.brought_by(extra)
        )
    if spark:
        yield _run_spark_job()
    if pipelined:
        from millstream.cli.pipelined import examine_pipelined

        yield examine_pipelined(settings or {})
    master = (settings or {}).get("spark.master", "local")
    if master != "local" and not master.startswith("local["):
        from millstream.cli.cluster import examine_cluster

        yield from examine_cluster(settings or {})


def _print_line(finding: Finding) -> None:
    """One finding, as soon as it is there: the Spark job takes seconds."""
    status = click.style(f"{finding.status:<4}", fg=_COLOURS[finding.status], bold=True)
    click.echo(f"{status}  {finding.name:<22} {finding.found}")
    if finding.fix:
        click.echo(f"{'':28} {click.style('fix:', bold=True)} {finding.fix}")


@click.command()
@click.option("--spark", is_flag=True, help="Also start a local Spark and run a small job on it.")
@click.option(
    "--pipelined",
    is_flag=True,
    help="Also run a small job in pipelined mode, and say how long its records took.",
)
@click.option(
    "-D",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Settings of the jobs to come. With spark.master=spark://... that cluster is checked too, and with "
    "execution.checkpointing.dir whether all of it sees that folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(*, spark: bool, pipelined: bool, pairs: tuple[str, ...], as_json: bool) -> None:
    """Check that this machine can run Millstream, and that a cluster can.

    Says of each thing what was found and, where needed, the command that puts it right. Ends with
    code 1 if anything fails.

    \b
    millstream doctor -Dspark.master=spark://host:7077 -Dexecution.checkpointing.dir=/shared/checkpoints
    """
    findings = []
    for finding in examine(spark=spark, pipelined=pipelined, settings=parse_settings(pairs)):
        findings.append(finding)
        if not as_json:
            _print_line(finding)
    failed = [finding.name for finding in findings if finding.status == "fail"]
    if as_json:
        report = {"ok": not failed, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(report, indent=2))
    elif failed:
        click.secho(f"\nNot fit yet: {', '.join(failed)}.", fg="red", bold=True)
    else:
        click.secho("\nFit to run.", fg="green", bold=True)
    sys.exit(1 if failed else 0)
