"""Nothing that people get to see holds a secret, or commands a terminal."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading

import msgspec
import pytest
from click.testing import CliRunner

from millstream.checkpoint.lease import LeaseRecord
from millstream.cli import main
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import (
    ConfigurationError,
    JobError,
    MillstreamError,
    SourceError,
    decode,
    encode,
)
from millstream.redaction import get_logger, plain, remember, shown, without_secrets
from millstream.storage.storage import LocalStorage
from tests.support import environment

CANARY = "canary-5e7b"

HIDDEN = [
    f"postgresql://ann:{CANARY}@db/shop",
    f"postgresql://ann:a/{CANARY}@db/shop",
    f"s3://key:se:{CANARY}@bucket/x",
    f"host=db password={CANARY} user=ann",
    f"host=db password='{CANARY} x' user=ann",
    f'{{"password": "{CANARY}", "user": "ann"}}',
    f"{{'sasl.jaas.config': '{CANARY} required'}}",
    f'set_string("fs.s3a.secret.key", "{CANARY}")',
    f"set_string('fs.azure.account.key.x', '{CANARY}')",
    f'connect(api_key="{CANARY}")',
    f"connect(passwd = '{CANARY}')",
    f"API-KEY: {CANARY}",
    f"access.key={CANARY}&x=1",
    f"spark.ssl.keyPassword={CANARY}",
    f"AWS_SECRET_ACCESS_KEY={CANARY}",
    f'os.environ["DB_TOKEN"] = "{CANARY}"',
    f'credentials=("ann", "{CANARY}")'.replace('("ann", ', ""),
    f"Authorization: Bearer {CANARY}.abc",
    f"private_key=r'{CANARY}'",
    f"url?sas={CANARY}&v=1",
    f'password="a\\"{CANARY}"',
    f'passphrase = f"{CANARY}"',
    f"/data/count%20password%3D{CANARY}%20words/chk-2",
    f"https://host/a?q=token%3a{CANARY}%21&x=1",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_a_secret_is_taken_out(text):
    assert CANARY not in without_secrets(text)
    assert "***" in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "tokens = line.split()",
        "key_by(lambda word: word[0]).sum(1)",
        "http://localhost:8081/jobs",
        "s3://bucket/folder",
        "parallelism.default=4",
        "disaster: yes",
        "password authentication failed for user ann",
        "key=5",
        "abfs://container@account/x",
        "pass password=... or postgresql://ann:...@db",
    ],
)
def test_other_text_stays(text):
    assert without_secrets(text) == text


def test_a_value_that_was_remembered_is_taken_out_wherever_it_stands():
    remember("canary-remembered")
    assert shown('connect("db", "canary-remembered")') == 'connect("db", "***")'


def test_control_characters_are_written_out():
    assert plain("a\x1b[31mb\x07\x9b\u202ec\td\n") == "a\\x1b[31mb\\x07\\x9b\\u202ec\td\n"


def test_errors_hold_no_secrets_and_no_commands():
    error = JobError(
        f"'sink\x1b[2J' failed: password={CANARY}", line=f'x(token="{CANARY}")', hint="\x1b]0;x\x07"
    )
    again = decode(encode(error))
    for one in (error, again):
        text = f"{one} {one.what} {one.evidence} {one.hint} {one.args}"
        assert CANARY not in text
        assert "\x1b" not in text


def test_logs_hold_no_secrets_and_no_commands(caplog):
    log = get_logger("millstream.job")
    with caplog.at_level(logging.INFO):
        log.info("job %s uses %s", "a\x1b[2J", f"postgresql://u:{CANARY}@h/d")
        try:
            raise ValueError(f"secret={CANARY}")
        except ValueError:
            log.warning("it failed", exc_info=True)
    assert "postgresql://***@h/d" in caplog.text
    assert "ValueError" in caplog.text
    assert CANARY not in caplog.text
    assert "\x1b" not in caplog.text


def test_every_logger_is_one_whose_lines_are_checked():
    import millstream

    found = subprocess.run(
        [
            "grep",
            "-rln",
            "logging.getLogger",
            "--include=*.py",
            os.path.dirname(millstream.__file__),
        ],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    # That of REST asks the loggers of others who listens to them, and writes nothing.
    assert sorted(
        os.path.relpath(name, os.path.dirname(millstream.__file__)) for name in found
    ) == [
        "redaction.py",
        "rest/logs.py",
    ]


PROGRAM = """
import logging, os, sys
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.postgres import PostgresSink

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
env = StreamExecutionEnvironment.get_execution_environment()
env.get_configuration().set_string("fs.s3a.secret.key", "canary-01")
how = os.environ["HOW"]


def fail(n):
    password = "canary-02"; raise ValueError(f"cannot log in with password={password}")


def clean(n, api_key="canary-03"):
    return {"id": n, "api_key": "canary-04"} if how != "record" else [][n["secret"]]


numbers = env.from_collection([{"n": 1, "secret": "canary-05"}])
numbers = numbers.map(clean).name("clean token=canary-06").set_description("uses password: canary-07")
if how == "function":
    numbers = numbers.map(fail)
if how == "key":
    numbers = numbers.key_by(lambda v, password="canary-08": v[5]).map(str)
if how == "dsn":
    to = PostgresSink.builder().set_table("t")
    numbers.sink_to(to.set_dsn("postgresql://u:canary-09@127.0.0.1:1/d").build_transactional())
elif how == "words":
    to = PostgresSink.builder().set_table("t")
    numbers.sink_to(to.set_dsn("host=127.0.0.1 port=1 password=canary-10").build_upsert("id"))
elif how == "dict":
    to = PostgresSink.builder().set_table("t")
    numbers.sink_to(to.set_dsn({"host": "127.0.0.1", "port": 1, "password": "canary-11"}).build_upsert("id"))
elif how == "bad dsn":
    PostgresSink.builder().set_dsn("postgresql://u:canary-12@[h/d")
else:
    numbers.print() if how != "fine" else numbers.map(lambda v: 1).print()
env.execute("job password=canary-13")
"""


@pytest.mark.parametrize(
    "how", ["function", "record", "key", "dsn", "words", "dict", "bad dsn", "fine"]
)
def test_no_artefact_of_a_run_holds_a_secret(tmp_path, how):
    """Secrets are planted in the program's text, its settings, its functions and its data."""
    job = tmp_path / "job.py"
    job.write_text(PROGRAM)
    checkpoints = tmp_path / "checkpoints"
    options = ["-Dexecution.target=in-process", f"-Dexecution.checkpointing.dir={checkpoints}"]
    options += ["-Dspark.hadoop.fs.s3a.access.key=canary-14", "-Drestart-strategy.type=none"]
    artefacts = {}
    for verb, words in (("run", options), ("info", options), ("info --json", options)):
        done = subprocess.run(
            [sys.executable, "-m", "millstream", *verb.split(), *words, str(job)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "HOW": how},
        )
        artefacts[verb] = done.stdout + done.stderr
    for folder, _, files in os.walk(checkpoints):
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                artefacts[path] = file.read().decode(errors="replace")
    listed = CliRunner().invoke(main, ["list", "--dir", str(checkpoints)])
    artefacts["list"] = listed.output
    # The line that a refused setting stands in is shown too, without what is secret in it.
    assert ("***" in artefacts["run"]) == (how != "fine")
    for name, text in artefacts.items():
        assert "canary-" not in text, f"{name}:\n{text}"


def test_a_jobs_name_does_not_command_the_terminal(tmp_path):
    name = "evil\x1b]0;owned\x07\x1b[2J"
    lease = LeaseRecord(
        owner="o", host="h", pid=1, process_start=1, job_name=name, counter=1, expires_at=0.0, ttl=1
    )
    LocalStorage(str(tmp_path / "x")).write("lease.json", msgspec.json.encode(lease))
    for words in (["list"], ["list", "--json"], ["stop", "nobody"]):
        done = CliRunner().invoke(main, [*words, "--dir", str(tmp_path)])
        assert "evil" in done.output
        assert "\x1b" not in done.output
        assert "\x07" not in done.output


def test_a_name_of_two_lines_is_one_line_of_a_list(tmp_path):
    """Else it could look like another job, or another operator."""
    name = "evil\n4f2a  orders\t checkpoint 7"
    env = environment(1, 1, execution__checkpointing__dir=tmp_path, restart_strategy__type="none")
    totals = env.from_collection([1, 2, 0]).key_by(lambda n: 0).reduce(lambda a, b: a // b)
    totals.name(name).uid(name).print()
    with pytest.raises(JobError):
        env.execute(name)
    (folder,) = tmp_path.iterdir()
    for words in (["list", "--dir", str(tmp_path)], ["savepoint", "show", str(folder)]):
        lines = CliRunner().invoke(main, words).output.splitlines()
        assert any("evil\\n4f2a" in line for line in lines)
        assert not any(line.startswith("4f2a") for line in lines)


def test_names_of_operators_in_plans_do_not_command_the_terminal():
    env = StreamExecutionEnvironment.get_execution_environment("in-process")
    env.from_collection([1]).map(str).name("a\x1b[2J token=canary").print()
    plan = json.loads(env.get_execution_plan())
    names = [node["type"] for node in plan["nodes"]]
    assert any("\\x1b" in name for name in names)
    assert "canary" not in str(names)


# -- folders that anybody may write to ---------------------------------------------------------------------------------


def run_in(folder):
    env = environment(1)
    env.get_configuration().set_string("execution.checkpointing.dir", str(folder))
    return list(env.from_collection([1]).execute_and_collect("private"))


def test_checkpoints_where_everybody_may_write_are_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match="everybody may write") as error:
        run_in(folder)
    assert error.value.evidence["permissions"] == "drwxrwxrwx"
    assert "chmod o-w" in error.value.hint
    folder.chmod(0o770)
    assert run_in(folder) == [1]


def test_a_jobs_folder_where_everybody_may_write_is_refused(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private").chmod(0o777)
    with pytest.raises(ConfigurationError, match="everybody may write"):
        run_in(tmp_path)


def test_a_folder_of_ones_own_where_everybody_may_make_folders_is_fine(tmp_path):
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    assert run_in(shared) == [1]
    assert run_in(shared / "mine") == [1]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user")
def test_a_folder_that_another_user_made_where_everybody_may_is_refused(tmp_path):
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "private").mkdir()
    os.chown(shared / "private", 12345, 12345)
    with pytest.raises(ConfigurationError, match="another user"):
        run_in(shared)


# -- a line without end ------------------------------------------------------------------------------------------------


def test_a_line_without_end_ends_the_job():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                try:
                    connection.sendall(b"fine\n")
                    while True:
                        connection.sendall(b"x" * 65536)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        env = environment(1)
        port = server.getsockname()[1]
        env.socket_text_stream("127.0.0.1", port, max_line_bytes=1 << 20).print()
        with pytest.raises(SourceError, match="without a delimiter") as error:
            env.execute()
        assert "max_line_bytes" in str(error.value)
        thread.join(10)


def test_secrets_of_the_configuration_are_not_shown():
    config = Configuration().set_string("spark.hadoop.fs.s3a.secret.key", "canary-configured")
    StreamExecutionEnvironment.get_execution_environment(config)
    assert "canary-configured" not in str(MillstreamError("got canary-configured"))
