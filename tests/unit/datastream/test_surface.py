"""Small classes and settings behave and refuse as PyFlink 2.3's do."""

from __future__ import annotations

import itertools

import pytest

from millstream.common import Configuration, Row, Types, WatermarkStrategy, options
from millstream.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    MemorySize,
    ProcessJoinFunction,
    SlotSharingGroup,
    SourceFunction,
    StreamExecutionEnvironment,
)
from millstream.errors import InvalidArgument, UnsupportedOperation
from tests.support import environment


def test_memory_sizes_are_ordered():
    sizes = [MemorySize(bytes_size=n) for n in (0, 1, 1024, 1 << 20)]
    for (i, a), (j, b) in itertools.product(enumerate(sizes), repeat=2):
        assert (a < b, a <= b, a > b, a >= b, a == b) == (i < j, i <= j, i > j, i >= j, i == j)
    for compare in ("__lt__", "__gt__", "__le__", "__ge__"):
        with pytest.raises(
            InvalidArgument, match="Does not support comparison with non-MemorySize 5"
        ):
            getattr(sizes[0], compare)(5)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1025, "1025 bytes"),
        (2048, "2 kb"),
        (100 << 20, "100 mb"),
        (3 << 30, "3 gb"),
    ],
)
def test_memory_sizes_are_written_as_flink_writes_them(size, text):
    assert str(MemorySize(bytes_size=size)) == text


def heavy(cores=1.5):
    return SlotSharingGroup.builder("heavy").set_cpu_cores(cores).set_task_heap_memory_mb(100)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda b: b.set_cpu_cores(0), "The cpu cores should be positive"),
        (lambda b: b.set_cpu_cores(-1.0), "The cpu cores should be positive"),
        (lambda b: b.set_cpu_cores(float("nan")), "The cpu cores should be positive"),
        (lambda b: b.set_task_heap_memory_mb(0), "The task heap memory should be positive"),
        (
            lambda b: b.set_task_heap_memory(MemorySize(bytes_size=0)),
            "The task heap memory should be positive",
        ),
        (lambda b: b.set_managed_memory(5), "is a MemorySize"),
        (lambda b: b.set_cpu_cores(1).build(), "cpu cores and task heap memory are required"),
        (lambda b: b.set_task_heap_memory_mb(1).build(), "cpu cores and task heap memory are"),
        (lambda b: b.set_managed_memory_mb(1).build(), "cpu cores and task heap memory are"),
        (lambda b: b.set_external_resource("gpu", 1).build(), "cpu cores and task heap memory are"),
    ],
)
def test_slot_sharing_groups_refuse_illegal_settings(build, words):
    with pytest.raises(InvalidArgument, match=words):
        build(SlotSharingGroup.builder("heavy"))


def test_a_slot_sharing_group_has_what_was_set():
    group = heavy().set_external_resource("gpu", 2.0).build()
    nothing = MemorySize(bytes_size=0)
    assert (group.get_task_off_heap_memory(), group.get_managed_memory()) == (nothing, nothing)
    assert group.get_external_resources() == {"gpu": 2.0}
    bare = SlotSharingGroup.builder("bare").build()
    assert (bare.get_cpu_cores(), bare.get_task_heap_memory(), bare.get_managed_memory()) == (
        None,
        None,
        None,
    )


def test_slot_sharing_groups_are_registered():
    env = environment()
    env.register_slot_sharing_group(heavy().build())
    env.register_slot_sharing_group(SlotSharingGroup.builder("bare").build())
    assert env.get_slot_sharing_groups() == {"heavy": heavy().build()}
    stream = env.from_collection([1]).map(str).slot_sharing_group(heavy().build())
    with pytest.raises(
        InvalidArgument,
        match="The slot sharing group heavy has been configured with two different resource spec",
    ):
        stream.map(str).slot_sharing_group(heavy(2).build())
    other = SlotSharingGroup.builder("other").set_cpu_cores(1).set_task_heap_memory_mb(1).build()
    stream.map(str).slot_sharing_group(other)
    assert sorted(env.get_slot_sharing_groups()) == ["heavy", "other"]
    with pytest.raises(InvalidArgument):
        stream.slot_sharing_group(5)


def test_unaligned_settings_are_read_as_they_were_set():
    env = environment()
    config = env.get_checkpoint_config()
    assert not env.is_unaligned_checkpoints_enabled()
    assert not env.is_force_unaligned_checkpoints()
    config.enable_unaligned_checkpoints()
    config.set_force_unaligned_checkpoints(True)
    config.set_aligned_checkpoint_timeout("3 s")
    assert env.is_unaligned_checkpoints_enabled()
    assert env.is_force_unaligned_checkpoints()
    assert config.is_force_unaligned_checkpoints()
    assert config.get_aligned_checkpoint_timeout().to_millis() == 3000
    config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    assert not config.is_unaligned_checkpoints_enabled()
    config.disable_unaligned_checkpoints()
    config.set_force_unaligned_checkpoints(False)
    assert not config.is_force_unaligned_checkpoints()


@pytest.mark.parametrize("storage", [FileSystemCheckpointStorage, JobManagerCheckpointStorage])
@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("file:///var/checkpoints/", "file:/var/checkpoints"),
        ("file://var/checkpoints/", "file://var/checkpoints"),
        ("file:/var//checkpoints", "file:/var/checkpoints"),
        ("hdfs://host:8020/c", "hdfs://host:8020/c"),
    ],
)
def test_paths_of_checkpoint_storage_are_normalized(storage, given, read):
    assert storage(given).get_checkpoint_path() == read


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FileSystemCheckpointStorage(None), "checkpoint_path must not be None"),
        (lambda: FileSystemCheckpointStorage("/no/scheme"), "The scheme .* is null"),
        (lambda: FileSystemCheckpointStorage("file:///"), "Cannot use the root directory"),
        (lambda: FileSystemCheckpointStorage("file:///a", 1 << 30), "threshold for file state"),
        (lambda: FileSystemCheckpointStorage("file:///a", -2), "threshold for file state"),
        (lambda: FileSystemCheckpointStorage("file:///a", 1, -2), "write buffer size must be"),
        (lambda: JobManagerCheckpointStorage("file:///a", 0), "maxStateSize must be > 0"),
    ],
)
def test_checkpoint_storage_refuses(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


def test_paths_of_the_state_backend_are_normalized():
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths("file://var/db_storage_dir1/", "file:///var/two/", "/var//three")
    assert backend.get_db_storage_paths() == ["/db_storage_dir1", "/var/two", "/var/three"]
    with pytest.raises(InvalidArgument, match="has a non-local scheme"):
        backend.set_db_storage_paths("hdfs://host/a")
    with pytest.raises(InvalidArgument, match="Relative paths are not supported"):
        backend.set_db_storage_paths("a/b")


def test_configure_reads_what_pyflink_reads():
    env = environment()
    config = Configuration()
    for key, value in {
        "pipeline.operator-chaining": "false",
        "execution.buffer-timeout": "1 min",
        "execution.checkpointing.timeout": "12000",
        "execution.checkpointing.unaligned": "true",
        "state.backend.changelog.enabled": "true",
        "pipeline.operator-chaining.chain-operators-with-different-max-parallelism": "false",
        "pipeline.auto-generate-uids": "false",
        "pipeline.object-reuse": "true",
        "pipeline.max-parallelism": "12",
        "parallelism.default": "3",
        "state.savepoints.dir": "/saved",
    }.items():
        config.set_string(key, value)
    with pytest.warns(UserWarning, match="has no effect"):
        env.configure(config)
    assert not env.is_chaining_enabled()
    assert env.get_buffer_timeout() == 60000
    assert env.get_checkpoint_config().get_checkpoint_timeout() == 12000
    assert env.is_unaligned_checkpoints_enabled()
    assert not env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    assert not env.get_config().has_auto_generated_uids_enabled()
    assert env.get_config().is_object_reuse_enabled()
    assert (env.get_max_parallelism(), env.get_parallelism()) == (12, 3)
    assert env.get_default_savepoint_directory() == "/saved"


@pytest.mark.parametrize("older", sorted(options.OLDER))
def test_an_older_key_stands_for_the_newer_one(older):
    option = options.ALL[options.OLDER[older]]
    value = {"boolean": "true", "int": "3", "duration": "3 s"}.get(option.type_name, "/a")
    if option.type_name == "enum":
        value = option.parse.choices[-1]
    config = Configuration().set_string(older, value)
    assert options.is_set(config, option)
    assert options.get(config, option) == option.parse(value)
    options.check_values(config)
    assert not any("unknown" in text for text in options.check_known(config))
    # The newer one counts if both are there.
    config.set_string(option.key, str(option.default or value))
    assert options.get(config, option) == option.parse(option.default or value)


def test_changelog_is_unknown_until_it_is_set():
    env = environment()
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(False).is_changelog_state_backend_enabled() is False


def test_a_keyed_stream_is_collected_as_named_rows():
    env = environment()
    data = [("p", 1), ("d", 2), ("p", 1)]
    stream = env.from_collection(data, Types.TUPLE([Types.STRING(), Types.INT()]))
    found = list(stream.key_by(lambda i: i[0], Types.STRING()).execute_and_collect())
    assert found == [Row(f0=value[0], f1=value) for value in data]
    assert repr(found[0]) == "Row(f0='p', f1=('p', 1))"


def test_rows_are_equal_whatever_the_order_of_their_names():
    one, other = Row(a=1, b=2), Row(b=2, a=1)
    assert one == other
    assert hash(one) == hash(other)
    assert {one: 1}[other] == 1
    assert one != Row(a=2, b=1)
    assert one != Row(1, 2)
    assert one != Row(a=1)
    assert Row(a=1, b=2) != Row(a=1, c=2)


def test_a_source_function_takes_nothing_of_java():
    class Mine(SourceFunction):
        def run(self, ctx):
            ctx.collect(1)

        def cancel(self):
            pass

    class Asking(Mine):
        def __init__(self, limit):
            super().__init__()
            self.limit = limit

    class Wrapping(Mine):
        def __init__(self):
            super().__init__("org.example.Source")

    assert Asking(5).limit == 5
    assert list(environment().add_source(Asking(5)).execute_and_collect()) == [1]
    for make in (lambda: SourceFunction("org.example.Source"), Wrapping):
        with pytest.raises(UnsupportedOperation, match="of Java's cannot be used"):
            make()


class Stamp:
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Times(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield ctx.get_timestamp(), ctx.timestamp()


def test_the_context_of_an_interval_join_has_get_timestamp():
    env: StreamExecutionEnvironment = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    left, right = (
        env.from_collection([("k", at)]).assign_timestamps_and_watermarks(strategy).key_by(0)
        for at in (10, 15)
    )
    joined = left.interval_join(right).between(-10, 10).process(Times())
    assert list(joined.execute_and_collect()) == [(15, 15)]
