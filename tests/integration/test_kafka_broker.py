"""The broker that `millstream.testing` gives to users."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.errors import RuntimeUnusable
from millstream.testing import java_servers, kafka_broker
from millstream.testing import kafka as testing_kafka
from tests.integration.kafka import Client
from tests.waiting import until


def test_the_block_has_a_broker_and_nothing_stays(kafka: Client) -> None:
    with kafka_broker() as servers:
        assert servers.startswith("127.0.0.1:")
        from confluent_kafka.admin import AdminClient

        assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).brokers
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(servers.rpartition(":")[2])), 1)


@pytest.mark.timeout(400)  # as long as clients may try again
def test_data_survives_a_crash_of_the_broker(broker: Client) -> None:
    topic = broker.topic()
    broker.write(topic, [b"a"])
    broker.broker.kill()
    broker.broker.start()
    assert broker.values(topic) == [b"a"]


def test_a_broker_does_not_outlive_a_process_that_is_killed(kafka: Client, tmp_path: Path) -> None:
    program = (
        "import time\n"
        "from millstream.testing.kafka import KafkaBroker\n"
        "broker = KafkaBroker()\n"
        "broker.start()\n"
        "print(broker._java.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    java = int(process.stdout.readline())
    os.kill(java, 0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not Path(f"/proc/{java}").exists())
    assert not Path(f"/proc/{java}").exists()


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(java_servers.shutil, "which", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeUnusable, match="Java is missing"):
        testing_kafka.kafka_jars()
    monkeypatch.setattr(java_servers, "java_command", lambda: "java")
    with pytest.raises(RuntimeUnusable, match="Maven is missing"):
        testing_kafka.kafka_jars()
