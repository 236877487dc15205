import copy
import pickle
import re
from datetime import timedelta

import pytest

from millstream.common import options
from millstream.common.config_options import ConfigOptions
from millstream.common.configuration import Configuration, parse_memory
from millstream.common.execution_config import ExecutionConfig
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.time import Duration
from millstream.errors import ConfigurationError, InvalidArgument


def full() -> Configuration:
    return (
        Configuration()
        .set_string("k1", "v1")
        .set_integer("k2", 1)
        .set_float("k3", 1.2)
        .set_boolean("k4", True)
        .set_bytearray("k5", bytearray([1, 2, 3]))
    )


def test_getters():
    config = full()
    assert config.get_string("k1", "") == "v1"
    assert config.get_integer("k2", 0) == 1
    assert config.get_float("k3", 0) == 1.2
    assert config.get_boolean("k4", False) is True
    assert config.get_bytearray("k5", bytearray()) == bytearray([1, 2, 3])


def test_defaults():
    config = Configuration()
    assert config.get_string("k", "d") == "d"
    assert config.get_integer("k", 7) == 7
    assert config.get_float("k", 1) == 1.0
    assert config.get_boolean("k", True) is True
    assert config.get_bytearray("k", bytearray(b"d")) == bytearray(b"d")


def test_values_are_read_across_types():
    config = Configuration.from_dict({"a": "12", "b": "true", "c": "1.5", "d": "AQID", "e": 5})
    assert config.get_integer("a", 0) == 12
    assert config.get_boolean("b", False) is True
    assert config.get_float("c", 0) == 1.5
    assert config.get_bytearray("d", bytearray()) == bytearray([1, 2, 3])
    assert config.get_string("e", "") == "5"


@pytest.mark.parametrize(
    ("method", "default"),
    [
        ("get_integer", 0),
        ("get_boolean", False),
        ("get_float", 0.0),
        ("get_bytearray", bytearray()),
    ],
)
def test_unreadable_values(method, default):
    config = Configuration().set_string("k", "not this!")
    with pytest.raises(ConfigurationError) as caught:
        getattr(config, method)("k", default)
    assert caught.value.evidence["key"] == "k"
    assert caught.value.evidence["value"] == "not this!"


def test_dicts():
    config = full()
    assert config.to_dict() == {"k1": "v1", "k2": "1", "k3": "1.2", "k4": "true", "k5": "AQID"}
    target: dict[str, object] = {}
    config.add_all_to_dict(target)
    assert target == {"k1": "v1", "k2": 1, "k3": 1.2, "k4": True, "k5": bytearray([1, 2, 3])}
    assert config.key_set() == {"k1", "k2", "k3", "k4", "k5"}


def test_from_dict_writes_python_values_as_text():
    config = Configuration.from_dict(
        {
            "mode": RuntimeExecutionMode.BATCH,
            "pause": timedelta(seconds=2),
            "delay": Duration.of_millis(5),
            "files": ["a", "b"],
            "raw": b"\x01",
        }
    )
    assert config.to_dict() == {
        "mode": "BATCH",
        "pause": "2000 ms",
        "delay": "5 ms",
        "files": "a;b",
        "raw": "AQ==",
    }


def test_none_and_bad_keys_are_refused():
    with pytest.raises(InvalidArgument):
        Configuration.from_dict({"a": None})
    with pytest.raises(InvalidArgument):
        Configuration.from_dict({1: "a"})
    with pytest.raises(InvalidArgument):
        Configuration(j_configuration=object())


def test_copies():
    config = full()
    for again in (Configuration(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert again == config
        assert hash(again) == hash(config)
        again.set_string("k1", "other")
        assert again != config
    assert config.get_string("k1", "") == "v1"


def test_add_all_and_remove():
    config = Configuration().add_all(full()).add_all(full(), "x.")
    assert config.get_string("x.k1", "") == "v1"
    assert config.contains_key("k1")
    assert config.remove_config("k1")
    assert not config.remove_config("k1")
    assert not config.contains_key("k1")
    same = Configuration().set_string("a", "b")
    assert same.add_all(same, "p.").key_set() == {"a", "p.a"}


def test_str():
    assert str(Configuration().set_integer("k2", 1).set_string("k1", "v1")) == "{k1=v1, k2=1}"


@pytest.mark.parametrize(
    ("value", "standard_yaml", "wanted"),
    [
        (None, True, []),
        ("", True, []),
        ("[jar1, jar2]", True, ["jar1", "jar2"]),
        ("- jar1\n- jar2", True, ["jar1", "jar2"]),
        ("jar1;jar2", True, ["jar1", "jar2"]),
        ("jar1;jar2", False, ["jar1", "jar2"]),
        ("[jar1, jar2]", False, ["[jar1, jar2]"]),
        ("[broken", True, ["[broken"]),
        ("[1, true]", True, ["1", "true"]),
    ],
)
def test_parse_list_value(value, standard_yaml, wanted):
    assert Configuration.parse_list_value(value, standard_yaml) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("64 mb", 64 << 20),
        ("64MB", 64 << 20),
        ("1.5k", 1536),
        ("2 gb", 2 << 30),
        ("1 tb", 1 << 40),
        ("10", 10),
        ("10 bytes", 10),
        (10, 10),
    ],
)
def test_parse_memory(text, wanted):
    assert parse_memory(text) == wanted


@pytest.mark.parametrize("text", ["", "mb", "-1 mb", "1 xb", "1 2 mb", True, None, 1.5e300])
def test_not_a_memory_size(text):
    with pytest.raises(InvalidArgument):
        parse_memory(text)


# ------------------------------------------------------------------ options


def test_every_option_is_complete():
    assert len(options.ALL) > 50
    for key, option in options.ALL.items():
        assert option.key == key
        assert option.description.endswith(".")
        assert "\n" not in option.description
        assert option.wanted
        # Every default can be read.
        options.get(Configuration(), option)


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("execution.checkpointing.interval", None),
        ("execution.checkpointing.mode", "EXACTLY_ONCE"),
        ("execution.checkpointing.timeout", 600_000),
        ("execution.checkpointing.min-pause", 0),
        ("execution.checkpointing.max-concurrent-checkpoints", 1),
        ("execution.checkpointing.tolerable-failed-checkpoints", 0),
        ("execution.checkpointing.dir", None),
        ("execution.checkpointing.savepoint-dir", None),
        ("execution.checkpointing.num-retained", 1),
        ("execution.checkpointing.incremental", True),
        ("execution.checkpointing.unaligned.enabled", False),
        ("execution.checkpointing.aligned-checkpoint-timeout", 0),
        (
            "execution.checkpointing.externalized-checkpoint-retention",
            "NO_EXTERNALIZED_CHECKPOINTS",
        ),
        ("state.backend.type", "hashmap"),
        ("execution.state-recovery.path", None),
        ("execution.state-recovery.claim-mode", None),
        ("execution.state-recovery.ignore-unclaimed-state", False),
        ("pipeline.name", None),
        ("pipeline.max-parallelism", -1),
        ("pipeline.auto-watermark-interval", 200),
        ("pipeline.operator-chaining.enabled", True),
        ("parallelism.default", 1),
        ("execution.runtime-mode", "STREAMING"),
        ("execution.buffer-timeout.interval", 100),
        ("restart-strategy.type", None),
        ("restart-strategy.fixed-delay.attempts", 1),
        ("restart-strategy.fixed-delay.delay", 1000),
        ("high-availability.type", "NONE"),
        ("high-availability.storageDir", None),
        ("high-availability.zookeeper.quorum", None),
        ("rest.port", 8081),
        ("web.refresh-interval", 3000),
        ("metrics.reporters", None),
        ("execution.target", "spark"),
        ("millstream.epoch.interval", 1000),
        ("millstream.buffer.bytes", 256 << 10),
        ("millstream.buffer.records", 8192),
        ("millstream.sort.memory", 64 << 20),
        ("millstream.state.dir", None),
        ("millstream.print.generated-code", False),
        ("millstream.progress", "auto"),
    ],
)
def test_defaults_of_the_catalogue(key, default):
    assert options.get(Configuration(), options.ALL[key]) == default


def test_get_parses():
    config = Configuration.from_dict(
        {
            "execution.checkpointing.interval": "10 s",
            "execution.runtime-mode": RuntimeExecutionMode.BATCH,
            "execution.target": "IN_PROCESS",
            "rest.port": "80",
            "millstream.progress": True,
            "execution.checkpointing.incremental": "True",
        }
    )
    assert options.get(config, options.CHECKPOINTING_INTERVAL) == 10_000
    assert options.get(config, options.RUNTIME_MODE) == "BATCH"
    assert options.get(config, options.TARGET) == "in-process"
    assert options.get(config, options.REST_PORT) == 80
    assert options.get(config, options.PROGRESS) == "true"
    assert options.get(config, options.CHECKPOINTING_INCREMENTAL) is True


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("rest.port", "eighty", "a whole number of 32 bits, from 0 to 65535"),
        ("rest.port", 2**31, "a whole number of 32 bits, from 0 to 65535"),
        ("rest.port", True, "a whole number of 32 bits, from 0 to 65535"),
        ("rest.port", 1.5, "a whole number of 32 bits, from 0 to 65535"),
        ("execution.checkpointing.timeout", "soon", 'a duration such as "10 s", at least 1 ms'),
        ("millstream.sort.memory", "much", 'a size such as "64 mb", at least 1 byte'),
        ("execution.target", "yarn", "one of spark, in-process"),
        ("pipeline.operator-chaining.enabled", "maybe", "true or false"),
    ],
)
def test_get_names_key_value_and_wanted(key, value, wanted):
    with pytest.raises(ConfigurationError) as caught:
        options.get(Configuration.from_dict({key: value}), options.ALL[key])
    error = caught.value
    assert error.code == "CONFIGURATION_INVALID"
    about = options.ALL[key].description
    assert error.evidence == {"key": key, "value": repr(value), "wanted": wanted, "about": about}
    assert wanted in error.hint


def test_check_known():
    config = Configuration.from_dict(
        {
            "paralellism.default": 2,
            "spark.executor.memory": "1g",
            "metrics.scope.task": "x",
            "rest.port": 8081,
            "zzz": 1,
        }
    )
    assert options.check_known(config) == [
        "the configuration key 'metrics.scope.task' has no effect: "
        "no reporter that is there forms names from it, as Flink's own for Prometheus does not",
        "unknown configuration key 'paralellism.default'; did you mean 'parallelism.default'?",
        "unknown configuration key 'zzz'",
    ]
    assert options.check_known(Configuration()) == []


def test_option_builder():
    option = ConfigOptions.key("a").double_type().default_value(0.5)
    assert options.get(Configuration(), option) == 0.5
    assert options.get(Configuration().set_string("a", "2"), option) == 2.0
    assert (
        options.get(Configuration(), ConfigOptions.key("b").long_type().no_default_value()) is None
    )
    assert not ConfigOptions.key("b").string_type().no_default_value().has_default_value()
    with pytest.raises(InvalidArgument):
        ConfigOptions.key("")
    with pytest.raises(ValueError):
        ConfigOptions.key("a").int_type().default_value("x")
    with pytest.raises(InvalidArgument):
        ConfigOptions.key("a").float_type().default_value(True)
    assert pickle.loads(pickle.dumps(options.TARGET)) == options.TARGET


# ------------------------------------------------------------------ ExecutionConfig


def test_execution_config_defaults():
    config = ExecutionConfig()
    assert config.get_parallelism() == ExecutionConfig.PARALLELISM_DEFAULT == -1
    assert ExecutionConfig.PARALLELISM_UNKNOWN == -2
    assert config.get_max_parallelism() == -1
    assert config.get_auto_watermark_interval() == 200
    assert config.get_latency_tracking_interval() == 1000
    assert config.get_task_cancellation_interval() == 30_000
    assert config.get_task_cancellation_timeout() == 180_000
    assert config.get_global_job_parameters() == {}
    assert config.is_closure_cleaner_enabled()
    assert config.has_auto_generated_uids_enabled()
    assert not config.is_object_reuse_enabled()
    assert not config.is_use_snapshot_compression()


def test_execution_config_setters_chain():
    config = (
        ExecutionConfig()
        .set_parallelism(4)
        .set_max_parallelism(256)
        .set_auto_watermark_interval(timedelta(seconds=1))
        .set_latency_tracking_interval(5)
        .set_task_cancellation_interval(6)
        .set_task_cancellation_timeout("7 s")
        .disable_closure_cleaner()
        .disable_auto_generated_uids()
        .enable_object_reuse()
        .set_use_snapshot_compression(True)
    )
    assert config.get_parallelism() == 4
    assert config.get_max_parallelism() == 256
    assert config.get_auto_watermark_interval() == 1000
    assert config.get_latency_tracking_interval() == 5
    assert config.get_task_cancellation_interval() == 6
    assert config.get_task_cancellation_timeout() == 7000
    assert not config.is_closure_cleaner_enabled()
    assert not config.has_auto_generated_uids_enabled()
    assert config.is_object_reuse_enabled()
    assert config.is_use_snapshot_compression()
    config.enable_closure_cleaner().enable_auto_generated_uids().disable_object_reuse()
    assert config.is_closure_cleaner_enabled()
    assert config.has_auto_generated_uids_enabled()
    assert not config.is_object_reuse_enabled()


def test_execution_config_is_a_view_of_the_configuration():
    shared = Configuration()
    config = ExecutionConfig(shared)
    shared.set_string("parallelism.default", "3")
    assert config.get_parallelism() == 3
    config.set_auto_watermark_interval(0)
    assert options.get(shared, options.AUTO_WATERMARK_INTERVAL) == 0
    assert options.check_known(shared) == []


def test_parallelism_flags():
    config = ExecutionConfig().set_parallelism(4)
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_UNKNOWN).get_parallelism() == 4
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT).get_parallelism() == -1


@pytest.mark.parametrize("bad", [0, -3, 1.5, True, "2"])
def test_bad_parallelism(bad):
    with pytest.raises(InvalidArgument):
        ExecutionConfig().set_parallelism(bad)
    if bad is not True:
        with pytest.raises(InvalidArgument):
            ExecutionConfig().set_max_parallelism(bad)


def test_more_bad_values():
    with pytest.raises(InvalidArgument):
        ExecutionConfig().set_max_parallelism(32769)
    with pytest.raises(InvalidArgument):
        ExecutionConfig().set_auto_watermark_interval(-1)


def test_global_job_parameters():
    parameters = {"a": 1, "url": "http://x:1/,y", "quote": "it's", "empty": "", "flag": True}
    config = ExecutionConfig().set_global_job_parameters(parameters)
    assert config.get_global_job_parameters() == {
        "a": "1",
        "url": "http://x:1/,y",
        "quote": "it's",
        "empty": "",
        "flag": "true",
    }


def test_global_job_parameters_from_the_command_line():
    shared = Configuration().set_string("pipeline.global-job-parameters", "a:1, url:http://x:2")
    assert ExecutionConfig(shared).get_global_job_parameters() == {"a": "1", "url": "http://x:2"}
    shared.set_string("pipeline.global-job-parameters", "nonsense")
    with pytest.raises(ConfigurationError, match=re.escape("name:value,name:value")):
        ExecutionConfig(shared).get_global_job_parameters()


def test_execution_config_equality():
    one, two = ExecutionConfig().set_parallelism(2), ExecutionConfig().set_parallelism(2)
    assert one == two
    assert hash(one) == hash(two)
    assert one != two.set_parallelism(3)
