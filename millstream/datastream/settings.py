"""From a configuration to the settings of a job."""

from __future__ import annotations

from typing import Any

from millstream.common import options
from millstream.common.config_options import ConfigOption
from millstream.common.configuration import Configuration
from millstream.common.dependencies import Declared, declared
from millstream.common.execution_config import ExecutionConfig
from millstream.common.restart_strategy import strategy_of
from millstream.datastream import overrides
from millstream.errors import ConfigurationError
from millstream.ha.services import HighAvailability
from millstream.runtime.driver.job import JobSettings
from millstream.storage.storage import stable

__all__ = ["buffer_timeout", "job_settings"]

_PIPELINED_TIMEOUT = 2


def job_settings(configuration: Configuration, job_name: str | None) -> JobSettings:
    """The settings that a configuration stands for.

    >>> job_settings(Configuration(), "count").name
    'count'
    """

    def get(option: ConfigOption[Any]) -> Any:
        return options.get(configuration, option)

    dependencies = declared(configuration)
    key_file = get(options.STATE_KEY_FILE)
    checkpoint = get(options.CHECKPOINTING_INTERVAL)
    pause = 0 if checkpoint is None else get(options.CHECKPOINTING_MIN_PAUSE)
    # An epoch is what is read between two checkpoints: it is made so long that they are that far apart.
    round_interval = get(options.EPOCH_INTERVAL)
    interval = round_interval if checkpoint is None else max(checkpoint, pause)
    # Flink's default is not ours: processing is part of an epoch, and takes what it takes.
    timed = options.is_set(configuration, options.CHECKPOINTING_TIMEOUT)
    return JobSettings(
        name=job_name or get(options.PIPELINE_NAME) or "Millstream Streaming Job",
        epoch_interval=interval / 1000,
        round_interval=round_interval / 1000,
        checkpoint_interval=None if checkpoint is None else checkpoint / 1000,
        checkpoint_timeout=get(options.CHECKPOINTING_TIMEOUT) / 1000 if timed else None,
        min_pause=pause / 1000,
        tolerable_failures=get(options.CHECKPOINTING_TOLERABLE_FAILURES),
        buffer_bytes=get(options.BUFFER_BYTES),
        buffer_records=get(options.BUFFER_RECORDS),
        sort_memory=get(options.SORT_MEMORY),
        checkpoint_dir=get(options.CHECKPOINTING_DIRECTORY),
        savepoint_dir=get(options.SAVEPOINT_DIRECTORY),
        local_dir=get(options.STATE_DIRECTORY),
        key_file=None if key_file is None else stable(key_file),
        mode=get(options.CHECKPOINTING_MODE),
        retained=get(options.CHECKPOINTING_NUM_RETAINED),
        retention=get(options.CHECKPOINTING_RETENTION),
        backend=get(options.STATE_BACKEND),
        recovery_path=get(options.RECOVERY_PATH),
        allow_non_restored=get(options.RECOVERY_IGNORE_UNCLAIMED),
        claim_mode=get(options.RECOVERY_CLAIM_MODE),
        resume=get(options.RESUME),
        restart=strategy_of(configuration),
        print_code=get(options.PRINT_GENERATED_CODE),
        job_parameters=ExecutionConfig(configuration).get_global_job_parameters(),
        epoch_records=get(options.EPOCH_RECORDS),
        dependencies=dependencies,
        spark=_for_spark(configuration, dependencies),
        progress=get(options.PROGRESS),
        scheduler_mode=get(options.SCHEDULER_MODE),
        slots_settle=get(options.SLOTS_SETTLE) / 1000,
        slots_settle_at_start=get(options.SLOTS_SETTLE_AT_START) / 1000,
        rescale_pause=get(options.RESCALE_PAUSE) / 1000,
        latency_interval=get(options.LATENCY_INTERVAL) / 1000,
        reporters={
            key: value
            for key, value in configuration.to_dict().items()
            if key.startswith(("metrics.reporter.", "metrics.reporters"))
        },
        watermark_interval=get(options.AUTO_WATERMARK_INTERVAL) / 1000,
        share_panes=get(options.SHARE_PANES),
        columns=get(options.COLUMNS),
        object_reuse=get(options.OBJECT_REUSE),
        runtime_mode=get(options.RUNTIME_MODE),
        execution_mode=get(options.EXECUTION_MODE),
        flow_timeout=buffer_timeout(configuration),
        high_availability=_of_job(overrides.forced(configuration)),
    )


def buffer_timeout(configuration: Configuration) -> int:
    """How long a record may wait in a buffer, in milliseconds. If nobody says so, in pipelined mode not as long as in
    Flink: who turns it on wants results soon.

    >>> buffer_timeout(Configuration())
    100
    """
    pipelined = options.get(configuration, options.EXECUTION_MODE) == "PIPELINED"
    if pipelined and not options.is_set(configuration, options.BUFFER_TIMEOUT):
        return _PIPELINED_TIMEOUT
    wait: int = options.get(configuration, options.BUFFER_TIMEOUT)
    return wait


def _of_job(configuration: Configuration) -> HighAvailability | None:
    folder = options.get(configuration, options.CHECKPOINTING_DIRECTORY)
    if folder is not None:
        # No job has a folder of this name.
        return high_availability(configuration, f"{folder.rstrip('/')}/.high-availability")
    if options.get(configuration, options.HA_OPTIONAL) or not _is_available(configuration):
        return None
    raise ConfigurationError(
        "high availability needs checkpoints: a driver that takes over goes on from the last one",
        hint="set execution.checkpointing.dir to a folder that every driver can see",
    )


def _is_available(configuration: Configuration) -> bool:
    standby = options.get(configuration, options.HA_STANDBY)
    return bool(standby) or options.get(configuration, options.HA_TYPE) != "NONE"


def high_availability(configuration: Configuration, default: str | None) -> HighAvailability | None:
    """What is set of it, if it is on. `default` is the folder for what leaders leave each other, if none is set."""

    def get(option: ConfigOption[Any]) -> Any:
        return options.get(configuration, option)

    if not _is_available(configuration):
        return None
    storage = get(options.HA_STORAGE) or default
    if storage is None:
        raise ConfigurationError(
            "sessions that stand by for each other need a folder that all of them can see",
            hint=f"set {options.HA_STORAGE.key}",
        )
    kind = get(options.HA_TYPE)
    return HighAvailability(
        type="file" if kind == "NONE" else kind,
        storage_dir=storage,
        cluster_id=get(options.HA_CLUSTER_ID),
        quorum=get(options.HA_QUORUM),
        root=get(options.HA_ROOT),
        session_timeout=get(options.HA_SESSION_TIMEOUT) / 1000,
        lease_timeout=get(options.HA_LEASE_TIMEOUT) / 1000,
        watch_process=get(options.HA_WATCH_PROCESS),
        quiet=get(options.HA_STANDBY),
        optional=get(options.HA_OPTIONAL),
    )


def _for_spark(configuration: Configuration, dependencies: Declared) -> dict[str, str]:
    """What Spark is told."""
    settings = {
        key: value for key, value in configuration.to_dict().items() if key.startswith("spark.")
    }
    if dependencies.jars:
        own = settings.get("spark.jars")
        settings["spark.jars"] = ",".join(([own] if own else []) + list(dependencies.jars))
    return {**slots_for_spark(configuration), **settings}


def slots_for_spark(configuration: Configuration) -> dict[str, str]:
    """What Spark is told of slots, and of how Java starts."""
    # Named here and not imported: building a program imports no Spark. What "auto" means is for whoever starts it.
    daemons = {"true": "millstream.spark.slots.daemon", "false": "pyspark.daemon"}
    daemon = daemons.get(options.get(configuration, options.SLOTS_ENABLED))
    most = options.get(configuration, options.SLOTS_PER_QUERY)
    told = {} if daemon is None else {"spark.python.daemon.module": daemon}
    if most is not None:
        told["spark.executorEnv.MILLSTREAM_SLOTS_PER_QUERY"] = str(most)
    if not options.get(configuration, options.CLASS_ARCHIVE):
        told["spark.millstream.class-archive"] = "false"
    return told
