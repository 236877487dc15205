"""The catalogue: every configuration key that Millstream knows, with type, default and purpose.

The keys are Flink's where Flink has one; our own begin with `millstream.`. Whoever needs a value
asks `get(config, OPTION)`. Keys that begin with `spark.` are handed to Spark as they are. Answers
to Flink's `CheckpointingOptions`, `PipelineOptions`, `CoreOptions`, `RestOptions` and their like.
"""

from __future__ import annotations

import difflib
from typing import Any, TypeVar

from millstream.common.config_options import ConfigOption, ConfigOptions
from millstream.common.configuration import Configuration, to_text
from millstream.common.reporter_options import OF_REPORTERS, of_reporter
from millstream.common.reporter_options import PREFIX as _OF_A_REPORTER
from millstream.common.spark_keys import meant_of_spark
from millstream.errors import ConfigurationError, InvalidArgument
from millstream.redaction import is_secret_name, remember

__all__ = [
    "ALL",
    "MOST_PARALLELISM",
    "NO_EFFECT",
    "OLDER",
    "PREFIXES",
    "check_known",
    "check_values",
    "checked",
    "get",
    "is_set",
    "put",
    "read",
]

T = TypeVar("T")
"""The type of an option's values."""

ALL: dict[str, ConfigOption[Any]] = {}
"""Key to option, in the order of this module; docs/options.md is made from it (`scripts/option_table.py`)."""

NO_EFFECT: dict[str, str] = {}
"""Keys (and, ending in a dot, beginnings of keys) of Flink's that are accepted and that nothing depends on: why."""

_OF_PYFLINK = (
    "python.fn-execution.",
    "python.map-state.",
    "python.state.",
    "python.metric.",
    "python.profile.",
    "python.systemenv.",
    "python.operator-chaining.",
    "python.client.",
    "python.logging.",
)
PREFIXES = ("spark.", "metrics.scope.", *_OF_PYFLINK)
"""Keys that begin so are known whatever follows."""

NO_EFFECT["metrics.scope."] = (
    "no reporter that is there forms names from it, as Flink's own for Prometheus does not"
)
NO_EFFECT.update(dict.fromkeys(_OF_PYFLINK, "it is about PyFlink's own worker processes"))

OLDER = {
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "execution.buffer-timeout": "execution.buffer-timeout.interval",
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "execution.checkpointing.alignment-timeout": "execution.checkpointing.aligned-checkpoint-timeout",
    "state.checkpoints.dir": "execution.checkpointing.dir",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "state.backend.incremental": "execution.checkpointing.incremental",
    "state.backend": "state.backend.type",
    "state.backend.changelog.enabled": "state.changelog.enabled",
    "execution.savepoint.path": "execution.state-recovery.path",
    "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery.ignore-unclaimed-state",
    "execution.savepoint-restore-mode": "execution.state-recovery.claim-mode",
    "restart-strategy": "restart-strategy.type",
    "high-availability": "high-availability.type",
    "jobmanager.adaptive-scheduler.resource-stabilization-timeout": (
        "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout"
    ),
    "jobmanager.adaptive-scheduler.scaling-interval.min": (
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
    ),
    "task.cancellation-interval": "task.cancellation.interval",
}
"""Older keys of Flink's, which it still reads, and those that stand for them now."""


def _known(
    option: ConfigOption[T], description: str, no_effect: str | None = None
) -> ConfigOption[T]:
    option = option.with_description(description)
    ALL[option.key] = option
    if no_effect is not None:
        NO_EFFECT[option.key] = no_effect
    return option


_key = ConfigOptions.key

MOST_PARALLELISM = 1 << 15
"""The most subtasks and key groups that an operator can have, as in Flink."""

# ------------------------------------------------------------------ the job as a whole

TARGET = _known(
    _key("execution.target").enum_type("spark", "in-process").default_value("spark"),
    "Where the job runs: on Spark, or in this process for tests and debugging.",
)
RUNTIME_MODE = _known(
    _key("execution.runtime-mode")
    .enum_type("STREAMING", "BATCH", "AUTOMATIC")
    .default_value("STREAMING"),
    "Whether results come as records arrive, or once all input of a key is there.",
)
EXECUTION_MODE = _known(
    _key("execution.mode").enum_type("MICRO_BATCH", "PIPELINED").default_value("MICRO_BATCH"),
    "Whether records are taken through the job epoch by epoch, or flow through all of it at once, in milliseconds.",
)
PIPELINE_NAME = _known(
    _key("pipeline.name").string_type().no_default_value(),
    "The name of the job, unless execute() is given one.",
)
PARALLELISM = _known(
    _key("parallelism.default").int_type().between(1, MOST_PARALLELISM).default_value(1),
    "How many subtasks an operator has that does not say so itself.",
)
MAX_PARALLELISM = _known(
    _key("pipeline.max-parallelism")
    .int_type()
    .between(1, MOST_PARALLELISM, also=-1)
    .default_value(-1),
    "How many key groups there are, and so the most a job can be scaled to; -1 derives it.",
)
SCHEDULER_MODE = _known(
    _key("scheduler-mode").enum_type("REACTIVE").no_default_value(),
    "REACTIVE: the job takes all slots that Spark has, and is rescaled when executors come or go; what the program "
    "says of parallelism does not count.",
)
SLOTS_SETTLE = _known(
    _key("jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout")
    .duration_type()
    .at_least(0, "ms")
    .default_value("60 s"),
    "In reactive mode: how long the number of slots has to stay what it is before a running job is rescaled to it.",
)
SLOTS_SETTLE_AT_START = _known(
    _key("jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout")
    .duration_type()
    .at_least(0, "ms")
    .default_value("0 ms"),
    "In reactive mode: the same before a job begins. There has to be one slot.",
)
RESCALE_PAUSE = _known(
    _key("jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling")
    .duration_type()
    .at_least(0, "ms")
    .default_value("30 s"),
    "In reactive mode: the least time between two changes of a job's parallelism.",
)
AUTO_WATERMARK_INTERVAL = _known(
    _key("pipeline.auto-watermark-interval")
    .duration_type()
    .at_least(0, "ms")
    .default_value("200 ms"),
    "0 means that periodic watermark generators are asked at the end only; else they are after at most 1024 records, "
    "and at the end of every epoch.",
)
OPERATOR_CHAINING = _known(
    _key("pipeline.operator-chaining.enabled").boolean_type().default_value(True),
    "Whether operators with no exchange between them run in one loop.",
)
CHAINING_DIFFERENT_MAX = _known(
    _key("pipeline.operator-chaining.chain-operators-with-different-max-parallelism")
    .boolean_type()
    .default_value(True),
    "Whether operators with another number of key groups are chained.",
    no_effect="chaining does not look at the max parallelism",
)
OBJECT_REUSE = _known(
    _key("pipeline.object-reuse").boolean_type().default_value(False),
    "Hand records on without a copy, also those that can be changed; functions then must not change what they have "
    "taken or emitted.",
)
CLOSURE_CLEANER = _known(
    _key("pipeline.closure-cleaner-level")
    .enum_type("NONE", "TOP_LEVEL", "RECURSIVE")
    .default_value("RECURSIVE"),
    "Whether closures are cleaned before they are shipped.",
    no_effect="Python closures need no cleaning",
)
AUTO_GENERATE_UIDS = _known(
    _key("pipeline.auto-generate-uids").boolean_type().default_value(True),
    "Whether operators without a uid get one; if not, such a job is refused.",
)
GLOBAL_JOB_PARAMETERS = _known(
    _key("pipeline.global-job-parameters").string_type().no_default_value(),
    'Parameters that every function can read, as "name:value,name:value".',
)
BUFFER_TIMEOUT = _known(
    _key("execution.buffer-timeout.interval")
    .duration_type()
    .at_least(-1, "ms")
    .default_value("100 ms"),
    "How long a record may wait for its buffer to fill, in pipelined mode; 2 ms there, if it is not set. Without that "
    "mode a level hands its buffers on when it is done.",
)
PYTHON_FILES = _known(
    _key("python.files").string_type().no_default_value(),
    "Python files, zip files and folders that functions import from, separated by commas.",
)
PYTHON_REQUIREMENTS = _known(
    _key("python.requirements").string_type().no_default_value(),
    "A requirements file of packages that functions import; FILE#FOLDER installs from a folder of packages alone.",
)
PYTHON_ARCHIVES = _known(
    _key("python.archives").string_type().no_default_value(),
    "Archives that are unpacked where functions run, separated by commas; FILE#NAME gives the folder a name.",
)
PYTHON_MODE = _known(
    _key("python.execution-mode").enum_type("process", "thread").default_value("process"),
    "Where functions run: beside Flink's own process, or in it.",
    no_effect="functions run in Spark's Python workers",
)
CACHED_FILES = _known(
    _key("pipeline.cached-files").string_type().no_default_value(),
    "Files that functions find by name: name:...,path:...;name:...,path:...,executable:true.",
)
JARS = _known(
    _key("pipeline.jars").string_type().no_default_value(),
    'Java libraries for Spark, as "[a.jar, b.jar]" or "a.jar;b.jar".',
)
CLASSPATHS = _known(
    _key("pipeline.classpaths").string_type().no_default_value(),
    "Java libraries for Spark that every host already has under the same path.",
)
PYTHON_EXECUTABLE = _known(
    _key("python.executable").string_type().no_default_value(),
    "The Python that the workers run.",
)
SHIP_ENVIRONMENT = _known(
    _key("millstream.environment.ship").boolean_type().default_value(False),
    "Pack the driver's packages and the program's modules, and ship them to hosts that have a bare Python of the same "
    "version (`--ship-environment`).",
)
ENVIRONMENT_PACKAGES = _known(
    _key("millstream.environment.packages").string_type().no_default_value(),
    "The packages to ship with Millstream, by name and separated by commas, `*` for all that are installed; if it is "
    "not set, those that the program has imported.",
)

# ------------------------------------------------------------------ checkpoints and state

CHECKPOINTING_INTERVAL = _known(
    _key("execution.checkpointing.interval").duration_type().at_least(1, "ms").no_default_value(),
    "How often a checkpoint is taken; without it there are none.",
)
CHECKPOINTING_MODE = _known(
    _key("execution.checkpointing.mode")
    .enum_type("EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE")
    .default_value("EXACTLY_ONCE"),
    "What a checkpoint guarantees.",
)
CHECKPOINTING_TIMEOUT = _known(
    _key("execution.checkpointing.timeout")
    .duration_type()
    .at_least(1, "ms")
    .default_value("10 min"),
    "How long an epoch or a savepoint may take before it is given up; only if it is set.",
)
CHECKPOINTING_MIN_PAUSE = _known(
    _key("execution.checkpointing.min-pause")
    .duration_type()
    .at_least(0, "ms")
    .default_value("0 ms"),
    "The least time between the end of one checkpoint and the next one; epochs are made so long.",
)
CHECKPOINTING_MAX_CONCURRENT = _known(
    _key("execution.checkpointing.max-concurrent-checkpoints")
    .int_type()
    .at_least(1)
    .default_value(1),
    "How many checkpoints may be under way at once.",
    no_effect="an epoch begins when the last one is complete",
)
CHECKPOINTING_TOLERABLE_FAILURES = _known(
    _key("execution.checkpointing.tolerable-failed-checkpoints")
    .int_type()
    .at_least(0)
    .default_value(0),
    "How many checkpoints in a row may fail and are tried again before the restart strategy is asked.",
)
CHECKPOINTING_DIRECTORY = _known(
    _key("execution.checkpointing.dir").string_type().no_default_value(),
    "The folder of the checkpoints.",
)
SAVEPOINT_DIRECTORY = _known(
    _key("execution.checkpointing.savepoint-dir").string_type().no_default_value(),
    "The folder of savepoints that are not given one.",
)
CHECKPOINTING_NUM_RETAINED = _known(
    _key("execution.checkpointing.num-retained").int_type().at_least(1).default_value(1),
    "How many complete checkpoints are kept, two at least: one stands in if a file of the other is damaged.",
)
CHECKPOINTING_INCREMENTAL = _known(
    _key("execution.checkpointing.incremental").boolean_type().default_value(True),
    "Whether a checkpoint writes only what has changed.",
    no_effect="every checkpoint holds only what has changed since the last one",
)
CHECKPOINTING_UNALIGNED = _known(
    _key("execution.checkpointing.unaligned.enabled").boolean_type().default_value(False),
    "Whether barriers overtake records.",
    no_effect="an epoch's border is aligned by construction",
)
CHECKPOINTING_UNALIGNED_FORCED = _known(
    _key("execution.checkpointing.unaligned.forced").boolean_type().default_value(False),
    "Whether barriers overtake records also in loops.",
    no_effect="an epoch's border is aligned by construction",
)
CHECKPOINTING_ALIGNED_TIMEOUT = _known(
    _key("execution.checkpointing.aligned-checkpoint-timeout")
    .duration_type()
    .at_least(0, "ms")
    .default_value("0 ms"),
    "How long barriers are aligned before they overtake records.",
    no_effect="an epoch's border is aligned by construction",
)
CHECKPOINTING_RETENTION = _known(
    _key("execution.checkpointing.externalized-checkpoint-retention")
    .enum_type("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS")
    .default_value("NO_EXTERNALIZED_CHECKPOINTS"),
    "What becomes of the checkpoints when the job is cancelled.",
)
SNAPSHOT_COMPRESSION = _known(
    _key("execution.checkpointing.snapshot-compression").boolean_type().default_value(False),
    "Whether snapshots of keyed state are compressed.",
    no_effect="state files have one format",
)
STATE_BACKEND = _known(
    _key("state.backend.type").enum_type("hashmap", "lmdb").default_value("hashmap"),
    "Where keyed state lives between checkpoints.",
)
STATE_CHANGELOG = _known(
    _key("state.changelog.enabled").boolean_type().default_value(False),
    "Whether changes of state are logged.",
    no_effect="every checkpoint holds only what has changed since the last one",
)
RECOVERY_PATH = _known(
    _key("execution.state-recovery.path").string_type().no_default_value(),
    "The savepoint or checkpoint that the job starts from.",
)
RECOVERY_CLAIM_MODE = _known(
    _key("execution.state-recovery.claim-mode")
    .enum_type("NO_CLAIM", "CLAIM", "LEGACY")
    .no_default_value(),
    "Whose the checkpoint is that the job starts from by its path: NO_CLAIM leaves what it has to commit to its job, "
    "CLAIM removes it once it is not needed any more. By default its output is committed and its files stay.",
)
RECOVERY_IGNORE_UNCLAIMED = _known(
    _key("execution.state-recovery.ignore-unclaimed-state").boolean_type().default_value(False),
    "Whether state that no operator claims may be left behind.",
)

# ------------------------------------------------------------------ failures

RESTART_STRATEGY = _known(
    _key("restart-strategy.type")
    .enum_type("none", "off", "disable", "fixed-delay", "failure-rate", "exponential-delay")
    .no_default_value(),
    "What happens when a job fails.",
)
RESTART_FIXED_ATTEMPTS = _known(
    _key("restart-strategy.fixed-delay.attempts").int_type().at_least(0).default_value(1),
    "How often a job is restarted before it is given up.",
)
RESTART_FIXED_DELAY = _known(
    _key("restart-strategy.fixed-delay.delay")
    .duration_type()
    .at_least(0, "ms")
    .default_value("1 s"),
    "How long to wait before a restart.",
)
RESTART_RATE_FAILURES = _known(
    _key("restart-strategy.failure-rate.max-failures-per-interval")
    .int_type()
    .at_least(1)
    .default_value(1),
    "How many failures within the interval are borne.",
)
RESTART_RATE_INTERVAL = _known(
    _key("restart-strategy.failure-rate.failure-rate-interval")
    .duration_type()
    .at_least(1, "ms")
    .default_value("1 min"),
    "The interval in which failures are counted.",
)
RESTART_RATE_DELAY = _known(
    _key("restart-strategy.failure-rate.delay")
    .duration_type()
    .at_least(0, "ms")
    .default_value("1 s"),
    "How long to wait before a restart.",
)
RESTART_EXPONENTIAL_INITIAL = _known(
    _key("restart-strategy.exponential-delay.initial-backoff")
    .duration_type()
    .at_least(1, "ms")
    .default_value("1 s"),
    "The first pause before a restart.",
)
RESTART_EXPONENTIAL_MAX = _known(
    _key("restart-strategy.exponential-delay.max-backoff")
    .duration_type()
    .at_least(1, "ms")
    .default_value("1 min"),
    "The longest pause before a restart.",
)
RESTART_EXPONENTIAL_MULTIPLIER = _known(
    _key("restart-strategy.exponential-delay.backoff-multiplier")
    .float_type()
    .at_least(1)
    .default_value(1.5),
    "How much longer each pause is than the last.",
)
RESTART_EXPONENTIAL_RESET = _known(
    _key("restart-strategy.exponential-delay.reset-backoff-threshold")
    .duration_type()
    .at_least(1, "ms")
    .default_value("1 h"),
    "How long a job must run without a failure for the pauses to begin anew.",
)
RESTART_EXPONENTIAL_JITTER = _known(
    _key("restart-strategy.exponential-delay.jitter-factor")
    .float_type()
    .between(0, 1)
    .default_value(0.1),
    "By which part of itself a pause may be longer or shorter.",
)
RESTART_EXPONENTIAL_ATTEMPTS = _known(
    _key("restart-strategy.exponential-delay.attempts-before-reset-backoff")
    .int_type()
    .at_least(1)
    .no_default_value(),
    "How many failures in a row are borne; without it any number.",
)
TASK_CANCELLATION_INTERVAL = _known(
    _key("task.cancellation.interval").duration_type().at_least(0, "ms").default_value("30 s"),
    "How long to wait before a task is told again to end.",
    no_effect="Spark ends the tasks of a cancelled job",
)
TASK_CANCELLATION_TIMEOUT = _known(
    _key("task.cancellation.timeout").duration_type().at_least(0, "ms").default_value("3 min"),
    "How long a task may take to end; 0 waits for ever.",
    no_effect="Spark ends the tasks of a cancelled job",
)
HA_TYPE = _known(
    _key("high-availability.type").enum_type("NONE", "zookeeper", "file").default_value("NONE"),
    "Who elects the driver that runs a job while others stand by: ZooKeeper, or a file in shared storage.",
)
HA_STORAGE = _known(
    _key("high-availability.storageDir").string_type().no_default_value(),
    "The folder, which every driver can see, of what leaders leave each other; by default a hidden one in that of the "
    "checkpoints.",
)
HA_CLUSTER_ID = _known(
    _key("high-availability.cluster-id").string_type().default_value("/default"),
    "What tells drivers that belong together from others with the same folder or ZooKeeper.",
)
HA_QUORUM = _known(
    _key("high-availability.zookeeper.quorum").string_type().no_default_value(),
    "The ZooKeeper servers, as host:port,host:port.",
)
HA_ROOT = _known(
    _key("high-availability.zookeeper.path.root").string_type().default_value("/millstream"),
    "The path in ZooKeeper below which everything is kept.",
)
HA_SESSION_TIMEOUT = _known(
    _key("high-availability.zookeeper.client.session-timeout")
    .duration_type()
    .at_least(100, "ms")
    .default_value("10 s"),
    "How long a leader may be silent before ZooKeeper counts it as gone (Flink's default is 60 s). ZooKeeper "
    "itself sets bounds to it: 2 and 20 of its ticks, by default 4 and 40 s.",
)

# ------------------------------------------------------------------ watching a job

REST_PORT = _known(
    _key("rest.port").int_type().between(0, 65535).default_value(8081),
    "The port of the REST API and the dashboard; the next free one of 100 if it is taken, any if it is 0.",
)
REST_BIND_ADDRESS = _known(
    _key("rest.bind-address").string_type().default_value("127.0.0.1"),
    "The address that the REST API listens on. Any but this machine's own needs a token.",
)
REST_TOKEN_FILE = _known(
    _key("rest.authentication.token-file").string_type().no_default_value(),
    "A file, readable by its owner alone, with the token that every request must carry: 43 random characters or more.",
)
WEB_REFRESH_INTERVAL = _known(
    _key("web.refresh-interval").duration_type().at_least(1, "ms").default_value("3 s"),
    "How often the dashboard asks for news.",
)
METRICS_REPORTERS = _known(
    _key("metrics.reporters").string_type().no_default_value(),
    "The names of the metrics reporters to start, separated by commas: prom, json, or names that are given a factory "
    "class. Without it all start that have one.",
)
LATENCY_INTERVAL = _known(
    _key("metrics.latency.interval").duration_type().at_least(0, "ms").default_value("1 s"),
    "How often a source marks the time at which it reads, for the latency to each sink; 0 means never.",
)

# ------------------------------------------------------------------ our own

EPOCH_INTERVAL = _known(
    _key("millstream.epoch.interval").duration_type().at_least(1, "ms").default_value("1 s"),
    "How long results may take where checkpoints are further apart: an epoch then has rounds of about this length.",
)
EPOCH_RECORDS = _known(
    _key("millstream.epoch.records").int_type().at_least(1).no_default_value(),
    "Cut epochs after so many records (and bounded jobs into epochs at all); by default by time.",
)
BUFFER_BYTES = _known(
    _key("millstream.buffer.bytes").memory_type().at_least(1, "byte").default_value("256 kb"),
    "A buffer that has grown to this size is sent.",
)
BUFFER_RECORDS = _known(
    _key("millstream.buffer.records").int_type().at_least(1).default_value(8192),
    "A buffer with this many records is sent.",
)
SHARE_PANES = _known(
    _key("millstream.windows.share-panes").boolean_type().default_value(True),
    "Let aggregate() over sliding windows add each record once and merge the parts of a window, in the order of time.",
)
COLUMNS = _known(
    _key("millstream.columns").boolean_type().default_value(True),
    "Let operators that can take columns have them, where a source or a function over batches gives some.",
)
SORT_MEMORY = _known(
    _key("millstream.sort.memory").memory_type().at_least(1, "byte").default_value("64 mb"),
    "How much a receiver keeps in memory while it orders its buffers; the rest goes to disk.",
)
CLASS_ARCHIVE = _known(
    _key("millstream.java.class-archive").boolean_type().default_value(True),
    "Let Java keep Spark's classes in an archive in the user's cache folder (~/.cache/millstream, some 160 MB), from "
    "which it starts in about two thirds of the time.",
)
STATE_DIRECTORY = _known(
    _key("millstream.state.dir").string_type().no_default_value(),
    "The folder on each worker's own disk for state that does not fit into memory.",
)
STATE_KEY_FILE = _known(
    _key("millstream.state.hmac-key-file").string_type().no_default_value(),
    "A file with a secret key, on every machine of the job, readable by its owner alone: all state is signed with it, "
    "and what is not signed with it is not read.",
)
RESUME = _known(
    _key("millstream.recovery.resume").string_type().default_value("auto"),
    "Go on from the job's last checkpoint: auto if there is one, never, or the id or name of a job that must be there.",
)
HA_STANDBY = _known(
    _key("millstream.high-availability.standby").boolean_type().default_value(False),
    "Whether this driver is meant to stand by (millstream run --standby): if high-availability.type is not set, as if "
    "it were `file`.",
)
HA_OPTIONAL = _known(
    _key("millstream.high-availability.optional").boolean_type().default_value(False),
    "Whether a job that no other driver could go on with (without checkpoints, or in BATCH mode) runs all the same; "
    "set by a session that others stand by for.",
)
HA_LEASE_TIMEOUT = _known(
    _key("millstream.high-availability.lease-timeout")
    .duration_type()
    .at_least(100, "ms")
    .default_value("10 s"),
    "With high-availability.type: file, how long a leader may be silent before another takes its place.",
)
HA_WATCH_PROCESS = _known(
    _key("millstream.high-availability.watch-process").boolean_type().default_value(True),
    "Whether a driver that stands by on the leader's own machine takes its place as soon as the leader's process is "
    "gone, without waiting for its time to run out.",
)
PRINT_GENERATED_CODE = _known(
    _key("millstream.print.generated-code").boolean_type().default_value(False),
    "Whether the loops that are generated for a job are printed, by each worker to its standard output.",
)
PROGRESS = _known(
    _key("millstream.progress").enum_type("auto", "true", "false").default_value("auto"),
    "Whether progress is shown in the terminal; auto shows it if there is one.",
)
SLOTS_ENABLED = _known(
    _key("millstream.slots.enabled").enum_type("auto", "true", "false").default_value("auto"),
    "Whether a subtask stays in its Python process, in a Spark that the job or its session starts; auto: if that Spark "
    "is local. On a cluster every executor needs the package for it.",
)
SLOTS_PER_QUERY = _known(
    _key("millstream.slots.per-query").int_type().at_least(1).no_default_value(),
    "How many Python processes the subtasks of a job share on each executor at most; without, four for each core.",
)
REST_ENABLED = _known(
    _key("millstream.rest.enabled").enum_type("auto", "true", "false").default_value("auto"),
    "Whether the job can be watched over REST and with the dashboard: auto means if it runs on Spark.",
)
REST_ALLOWED_HOSTS = _known(
    _key("millstream.rest.allowed-hosts").string_type().no_default_value(),
    "Further names, separated by commas, by which browsers may reach the REST API, for instance behind a proxy: "
    "`name` or `name:port`.",
)
REST_ANY_SAVEPOINT_DIR = _known(
    _key("millstream.rest.any-savepoint-dir").boolean_type().default_value(False),
    "Whether a request may have a savepoint written to any folder, and not only below the job's own.",
)
REST_FLINK_PAGE = _known(
    _key("millstream.rest.flink-page").string_type().no_default_value(),
    "Flink's own web page, to be served below /flink/: the jar flink-runtime-web, or a folder with its unpacked `web`.",
)
SESSION_HISTORY = _known(
    _key("millstream.session.history-size").int_type().at_least(0).default_value(200),
    "How many jobs that have ended a session remembers on disk.",
)
SESSION_LOG_SIZE = _known(
    _key("millstream.session.log-size").memory_type().at_least(4096, "byte").default_value("16 mb"),
    "The largest log of a job in a session; what is older is kept in one more file of that size.",
)
SESSION_REST_SUBMIT = _known(
    _key("millstream.session.rest-submit").boolean_type().default_value(False),
    "Whether programs may be started over REST in a session: those of `millstream.session.programs`, with a token.",
)
SESSION_PROGRAMS = _known(
    _key("millstream.session.programs").string_type().no_default_value(),
    "The programs that may be started over REST in a session: `name=path`, separated by commas.",
)


def get(config: Configuration, option: ConfigOption[T]) -> T:
    """The value of an option: what the configuration says, else the default.

    >>> get(Configuration(), CHECKPOINTING_TIMEOUT)
    600000
    >>> get(Configuration().set_string("rest.port", "80"), REST_PORT)
    80
    """
    value = config.get(option.key)
    if value is None and option.key in _NEWER:
        value = config.get(_NEWER[option.key])
    if value is None:
        value = option.default
    if value is None:
        # Only an option without a default comes here, and its T includes None.
        return None  # type: ignore[return-value]
    return read(option, value)


_NEWER = {newer: older for older, newer in OLDER.items()}


def is_set(config: Configuration, option: ConfigOption[Any]) -> bool:
    """Whether a configuration has a value for an option, under either of its names.

    >>> is_set(Configuration().set_string("state.checkpoints.dir", "/c"), CHECKPOINTING_DIRECTORY)
    True
    """
    return config.get(option.key) is not None or config.get(_NEWER.get(option.key, "")) is not None


def read(option: ConfigOption[T], value: Any) -> T:
    """What a value means as an option's; `ConfigurationError` if it cannot be.

    >>> read(CHECKPOINTING_TIMEOUT, "1 min")
    60000
    """
    try:
        return option.parse(value)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"the configuration value of {option.key!r} cannot be read",
            key=option.key,
            value=repr(value)[:200],
            wanted=option.wanted,
            about=option.description or None,
            hint=f"set {option.key} to {option.wanted}",
        ) from None


def checked(option: ConfigOption[T], value: Any) -> T:
    """As `read`, for what a program gives in a call: `InvalidArgument` if it cannot be.

    >>> checked(BUFFER_TIMEOUT, "10 ms")
    10
    """
    try:
        return read(option, value)
    except ConfigurationError as error:
        msg = f"this is not {option.wanted}"
        raise InvalidArgument(msg, got=repr(value)[:200], about=error.evidence["about"]) from None


def put(config: Configuration, option: ConfigOption[Any], value: Any) -> None:
    """Set an option, if the value can be one.

    >>> config = Configuration()
    >>> put(config, CHECKPOINTING_TIMEOUT, "1 min")
    >>> get(config, CHECKPOINTING_TIMEOUT)
    60000
    """
    checked(option, value)
    config.set_string(option.key, to_text(value))


def check_values(config: Configuration) -> None:
    """Raise for a value that no option can have, also of options that this job does not read. Values that nobody is to
    see, such as those of `spark.hadoop.fs.s3a.secret.key`, are not shown from here on.

    >>> check_values(Configuration().set_string("parallelism.default", "4"))
    """
    for key in sorted(config.key_set()):
        option = ALL.get(OLDER.get(key, key)) or of_reporter(key)
        if option is not None:
            get(config, option)
        # Where a secret stands is none.
        if is_secret_name(key) and not key.endswith("-file"):
            remember(config.get_string(key, ""))


def check_known(config: Configuration) -> list[str]:
    """One warning per key that nobody will read.

    >>> check_known(Configuration().set_integer("paralellism.default", 2))
    ["unknown configuration key 'paralellism.default'; did you mean 'parallelism.default'?"]
    >>> check_known(Configuration().set_integer("task.cancellation.interval", 1))
    ["the configuration key 'task.cancellation.interval' has no effect: Spark ends the tasks of a cancelled job"]
    """
    warnings = []
    for given in sorted(config.key_set()):
        key = OLDER.get(given, given)
        why = _why_no_effect(key)
        if why is not None and not _is_default(config, key):
            warnings.append(f"the configuration key {given!r} has no effect: {why}")
        meant = meant_of_spark(key) if key.startswith("spark.") else None
        if meant is not None:
            warnings.append(f"Spark has no configuration key {key!r}; did you mean {meant!r}?")
        if key in ALL or key.startswith(PREFIXES) or of_reporter(key) is not None:
            continue
        nearest = difflib.get_close_matches(key, [*ALL, *_like(key)], n=1)
        guess = f"; did you mean {nearest[0]!r}?" if nearest else ""
        warnings.append(f"unknown configuration key {key!r}{guess}")
    return warnings


def _like(key: str) -> list[str]:
    """The keys that the reporter has which a key is for."""
    name, dot, _ = key.removeprefix(_OF_A_REPORTER).partition(".")
    of_one = dot and key.startswith(_OF_A_REPORTER)
    return [f"{_OF_A_REPORTER}{name}.{ending}" for ending in OF_REPORTERS] if of_one else []


def _why_no_effect(key: str) -> str | None:
    for known, why in NO_EFFECT.items():
        if key == known or (known.endswith(".") and key.startswith(known)):
            return why
    return None


def _is_default(config: Configuration, key: str) -> bool:
    option = ALL.get(key)
    return (
        option is not None
        and option.has_default_value()
        and get(config, option) == option.parse(option.default)
    )
