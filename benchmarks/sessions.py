"""What jobs of one session do to each other, and what they leave behind.

Ten jobs at a given rate in one session; the process of one is killed, a function of another raises, one of a third ends
its worker again and again. The others' results have to be exact, and their rates what they were. Then a hundred short
jobs one after another: threads, files, processes and memory of the session before and after.

Usage: python benchmarks/sessions.py [--part ten|hundred] [--seconds S] [--rate R] [--jobs N] [--quick] [--markdown]
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "millstream"]
PROC = Path("/proc")

JOB = """
import os, sys
from millstream.common import Configuration, Encoder, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink

name, folder, rate, fault = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
now = os.path.join(folder, "now")

def work(n):
    if fault != "none" and n % 20 == 0 and os.path.exists(now):
        if fault == "raise":
            raise ValueError("as it was told to")
        os._exit(3)
    return (n % 50, 1)

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
counts = (
    env.from_source(DataGeneratorSource(lambda n: n, None, rate), WatermarkStrategy.no_watermarks(), "n")
    .map(work)
    .key_by(lambda pair: pair[0])
    .sum(1)
)
sink = FileSink.for_row_format(os.path.join(folder, "out"), Encoder.simple_string_encoder()).build()
counts.map(lambda pair: f"{pair[0]} {pair[1]}").sink_to(sink)
env.execute(name)
"""
SHORT = """
import sys
from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = env.from_source(
    DataGeneratorSource(lambda n: (n % 10, 1), 1000), WatermarkStrategy.no_watermarks(), "n"
)
numbers.key_by(lambda pair: pair[0]).sum(1).print()
env.execute(f"short {sys.argv[1]}")
"""
# Runs in the session's JVM, as any program may, and comes to no job.
PROBE = """
import json, sys, time
from pyspark.sql import SparkSession

jvm = SparkSession.active()._jvm
for _ in range(3):
    jvm.java.lang.System.gc()
    time.sleep(0.5)
memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
names = [thread.getName() for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]
with open(sys.argv[1], "w") as file:
    json.dump({"heap": memory, "names": sorted(names)}, file)
"""


class Session:
    """A session of its own, in a folder of its own."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.environment = {
            **os.environ,
            "MILLSTREAM_SESSIONS_DIR": str(folder / "sessions"),
            "TMPDIR": str(self.temporary),
        }
        self.millstream("session", "start", "-d", "-Drest.port=0", *settings)
        self.pid: int = json.loads(self.millstream("session", "list", "--json"))[0]["process"]

    def millstream(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [*COMMAND, *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        if check and done.returncode != 0:
            raise SystemExit(f"millstream {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {job["name"]: job for job in json.loads(self.millstream("list", "--json"))}

    def end(self) -> None:
        self.millstream("session", "stop", check=False)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- ten jobs --------------------------------------------------------------------------------------------

FAULTS = {"job 3": "kill", "job 5": "raise", "job 7": "exit"}


def ten(folder: Path, seconds: float, rate: float, interval: str) -> list[dict[str, Any]]:
    session = Session(folder)
    try:
        names = [f"job {number}" for number in range(10)]
        (folder / "job.py").write_text(JOB)
        for name in names:
            place = folder / name.replace(" ", "-")
            place.mkdir()
            fault = FAULTS.get(name, "none")
            strategy = "exponential-delay" if fault == "exit" else "none"
            session.millstream(
                "run", "-d",
                f"-Dexecution.checkpointing.dir={folder / 'checkpoints'}",
                f"-Dexecution.checkpointing.interval={interval}",
                f"-Drestart-strategy.type={strategy}",
                "job.py", name, str(place), str(rate), fault,
            )  # fmt: skip
            say(f"{name} runs")
        time.sleep(seconds / 2)
        before = rates(session, names, seconds)
        for name, fault in FAULTS.items():
            if fault == "kill":
                os.kill(process_of(session, name), signal.SIGKILL)
            else:
                (folder / name.replace(" ", "-") / "now").touch()
        say("three are killed or fail")
        time.sleep(3)
        after = rates(session, names, seconds)
        states = {name: job["status"] for name, job in session.jobs().items()}
        for name in names:
            if name not in FAULTS:
                session.millstream("stop", name, "-p", str(folder / "savepoints"))
        rows = []
        for name in names:
            results, wrong = checked(folder / name.replace(" ", "-") / "out")
            rows.append(
                {
                    "job": name,
                    "fault": FAULTS.get(name, ""),
                    "state": states[name],
                    "before": before[name],
                    "after": after[name],
                    "results": results,
                    "wrong": wrong,
                }
            )
        return rows
    finally:
        session.end()


def process_of(session: Session, name: str) -> int:
    """The process of a job: the one whose temporary folder is named like its submission."""
    submission = session.jobs()[name]["submission"]
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (
                f"MILLSTREAM_JOB_FOLDER={session.temporary}".encode()
                in (entry / "environ").read_bytes()
                and submission.encode() in (entry / "environ").read_bytes()
            ):
                return int(entry.name)
    raise SystemExit(f"no process has {name}")


def rates(session: Session, names: list[str], seconds: float) -> dict[str, float]:
    """Records a second of each job, over some seconds."""
    first, began = session.jobs(), time.monotonic()
    time.sleep(seconds)
    last, ended = session.jobs(), time.monotonic()
    return {
        name: (last[name]["records"] - first[name]["records"]) / (ended - began) for name in names
    }


def checked(folder: Path) -> tuple[int, int]:
    """How many results there are, and how many of them are missing or too many: each key counts 1, 2, 3, ..."""
    counts: dict[str, list[int]] = collections.defaultdict(list)
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.startswith((".", "_")):
            for line in file.read_text().splitlines():
                key, count = line.split()
                counts[key].append(int(count))
    wrong = sum(
        len(set(range(1, len(found) + 1)).symmetric_difference(found))
        + len(found)
        - len(set(found))
        for found in counts.values()
    )
    return sum(map(len, counts.values())), wrong


# -- a hundred jobs --------------------------------------------------------------------------------------


def hundred(folder: Path, jobs: int, warm: int) -> dict[str, dict[str, float]]:
    session = Session(folder)
    try:
        (folder / "short.py").write_text(SHORT)
        (folder / "probe.py").write_text(PROBE)
        run_short(session, warm, "warm")
        before = figures(session)
        began = time.monotonic()
        run_short(session, jobs, "job")
        took = time.monotonic() - began
        after = figures(session)
        return {"before": before, "after": after, "seconds each": {"all": took / jobs}}
    finally:
        session.end()


def run_short(session: Session, count: int, name: str) -> None:
    for number in range(count):
        session.millstream("run", "-d", "short.py", f"{name} {number}")
        deadline = time.monotonic() + 60
        while any(job["status"] not in ("FINISHED", "FAILED") for job in session.jobs().values()):
            if time.monotonic() > deadline:
                raise SystemExit(f"a short job has not ended: {session.jobs()}")
        if number % 10 == 9:
            say(f"{name}: {number + 1} of {count}")
    states = collections.Counter(job["status"] for job in session.jobs().values())
    if set(states) != {"FINISHED"}:
        raise SystemExit(f"short jobs have failed: {states}")


def figures(session: Session) -> dict[str, float]:
    """What the session has, once what is ending has ended."""
    # Idle workers of Spark go after a minute, and so do threads of its pools.
    time.sleep(70)
    place = session.folder / "probe.json"
    session.millstream("run", "-d", "probe.py", str(place), check=False)
    # The probe's own record, which says that it came to no job, is none of a short job's.
    for path in (session.folder / "sessions" / "default" / "history").glob("*.json"):
        if json.loads(path.read_text())["name"] == "probe.py":
            path.unlink()
    probe = json.loads(place.read_text())
    java = next(pid for pid in family(session) if b"java" in command(pid))
    own = [name for name in probe["names"] if "stream execution" in name or "Py4J" in name]
    state = session.folder / "sessions" / "default"
    kept = ("history", "archive", "logs")
    return {
        "session: threads": len(list((PROC / str(session.pid) / "task").iterdir())),
        "session: open files": len(list((PROC / str(session.pid) / "fd").iterdir())),
        "session: resident MB": resident(session.pid),
        "JVM: threads": len(probe["names"]),
        "JVM: threads of queries and gateways": len(own),
        "JVM: open files": len(list((PROC / str(java) / "fd").iterdir())),
        "JVM: heap after collection MB": probe["heap"] / (1 << 20),
        "processes": len(family(session)),
        "temporary files": sum(1 for _ in session.temporary.rglob("*")),
        "files of the session beside its history": sum(
            1 for path in state.rglob("*") if path.relative_to(state).parts[0] not in kept
        ),
    }


def family(session: Session) -> list[int]:
    mark = f"MILLSTREAM_SESSIONS_DIR={session.folder / 'sessions'}".encode()
    found = []
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0]
    return b""


def resident(pid: int) -> float:
    fields = dict(
        line.split(":", 1) for line in (PROC / str(pid) / "status").read_text().splitlines()
    )
    return int(fields["VmRSS"].split()[0]) / 1024


# -- what is shown ---------------------------------------------------------------------------------------


def show_ten(rows: list[dict[str, Any]]) -> bool:
    print("| job | fault | state | records/s before | after | change | results | wrong |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for row in rows:
        change = row["after"] / row["before"] - 1 if row["before"] else float("nan")
        if not row["fault"]:
            good = good and abs(change) <= 0.2 and row["state"] == "RUNNING"
        good = good and row["wrong"] == 0
        print(
            f"| {row['job']} | {row['fault']} | {row['state']} | {row['before']:,.0f} | {row['after']:,.0f} "
            f"| {change:+.1%} | {row['results']:,} | {row['wrong']} |"
        )
    return good


def show_hundred(found: dict[str, dict[str, float]], jobs: int) -> None:
    print(f"| what | before | after {jobs} jobs |")
    print("|---|---|---|")
    for name, value in found["before"].items():
        print(f"| {name} | {value:,.1f} | {found['after'][name]:,.1f} |")
    print(
        f"\n{found['seconds each']['all']:.2f} s for each job, with its command and the question for its end"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=["ten", "hundred"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--interval", default="5 s")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--markdown", action="store_true", help="as the others; it is what is printed anyway"
    )
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.jobs, given.warm = min(given.seconds, 20.0), 10, 5
    good = True
    for part in [given.part] if given.part else ["ten", "hundred"]:
        with tempfile.TemporaryDirectory(prefix="millstream-sessions-") as folder:
            if part == "ten":
                rows = ten(Path(folder), given.seconds, given.rate, given.interval)
                good = show_ten(rows)
            else:
                show_hundred(hundred(Path(folder), given.jobs, given.warm), given.jobs)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
