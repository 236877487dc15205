"""The files of `deploy/` against what is here: versions, options, names that must agree. No cluster is asked."""

from __future__ import annotations

import re
import subprocess
import tomllib
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
IMAGE = "registry.example/orders:1"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def settings(words: list[str]) -> dict[str, str]:
    given = [word[2:].partition("=") for word in words if word.startswith("-D")]
    return {key: value for key, _, value in given}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_objects_with_a_kind_and_a_name(path: Path) -> None:
    found = documents(path)
    assert found
    for each in found:
        assert each["apiVersion"]
        assert each["kind"]
        assert each["metadata"]["name"]


def test_the_deployment_s_command_line_is_one_of_ours() -> None:
    (driver,) = documents(KUBERNETES / "driver.yaml")
    container = driver["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["millstream"]
    assert container["image"] == IMAGE
    given = settings(container["args"])
    ours = {key: value for key, value in given.items() if not key.startswith("spark.")}
    # It knows these keys and takes these values.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(ours))
    assert given["spark.kubernetes.container.image"] == IMAGE
    slots = int(given["spark.executor.instances"]) * int(given["spark.executor.cores"])
    assert slots == int(given["parallelism.default"])
    named = {variable["name"] for variable in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= named


def test_a_key_that_is_not_ours_would_be_noticed() -> None:
    wrong = Configuration.from_dict({"execution.checkpointing.directory": "x"})
    with pytest.warns(UserWarning, match="execution.checkpointing.directory"):
        StreamExecutionEnvironment.get_execution_environment(wrong)


def test_the_account_of_drivers_has_the_rights() -> None:
    account, role, binding = documents(KUBERNETES / "rights.yaml")
    name = account["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (driver,) = documents(KUBERNETES / "driver.yaml")
    (apache,) = documents(KUBERNETES / "spark_application.yaml")
    (kubeflow,) = documents(KUBERNETES / "spark_application_kubeflow.yaml")
    used = {
        driver["spec"]["template"]["spec"]["serviceAccountName"],
        apache["spec"]["sparkConf"]["spark.kubernetes.authenticate.driver.serviceAccountName"],
        kubeflow["spec"]["driver"]["serviceAccount"],
    }
    assert used == {name}
    assert f"serviceAccountName={name}" in (KUBERNETES / "submit.sh").read_text()


def test_the_version_of_spark_is_the_one_of_the_project() -> None:
    spark = version("pyspark")
    (apache,) = documents(KUBERNETES / "spark_application.yaml")
    (kubeflow,) = documents(KUBERNETES / "spark_application_kubeflow.yaml")
    assert apache["spec"]["runtimeVersions"]["sparkVersion"] == spark
    assert kubeflow["spec"]["sparkVersion"] == spark
    assert f"ARG SPARK={spark}\n" in (KUBERNETES / "Dockerfile").read_text()
    assert f"millstream-{version('millstream')}-" in (DEPLOY / "yarn/submit.sh").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.parent.name)
def test_scripts_are_programs_that_bash_reads(path: Path) -> None:
    assert path.stat().st_mode & 0o111
    read = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize(
    ("script", "variables", "said"),
    [
        ("kubernetes/submit.sh", {}, "the address of the Kubernetes API"),
        ("yarn/submit.sh", {}, "usage: submit.sh job.py"),
    ],
)
def test_what_is_missing_is_told(script: str, variables: dict[str, str], said: str) -> None:
    done = subprocess.run(
        [str(DEPLOY / script)],
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert said in done.stderr


def test_a_submission_names_image_and_program(tmp_path: Path) -> None:
    """What the scripts hand to spark-submit, of which there is one here that only prints."""
    home = tmp_path / "bin"
    home.mkdir()
    submit = home / "spark-submit"
    submit.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    submit.chmod(0o755)
    (tmp_path / "environment.tar.gz").touch()
    variables = {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(tmp_path), "HADOOP_CONF_DIR": "/etc"}
    for script, words, last in (
        ("kubernetes/submit.sh", ["--conf", "spark.x=1"], ["spark.x=1", "local:///opt/job/job.py"]),
        ("yarn/submit.sh", ["job.py", "a b"], ["job.py", "a b"]),
    ):
        done = subprocess.run(
            [str(DEPLOY / script), *words],
            env=variables | {"API": "https://api:6443"},
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        given = done.stdout.splitlines()
        assert given[-2:] == last
        assert "cluster" in given


def test_the_image_has_a_python_that_millstream_takes() -> None:
    """That of Spark's image is its Linux's, and has been too old."""
    lines = (KUBERNETES / "Dockerfile").read_text()
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    (python,) = re.findall(r"^ARG PYTHON=(.+)$", lines, re.MULTILINE)
    assert python in SpecifierSet(wanted)
    (folder,) = re.findall(r"uv venv --python .*? (\S+)$", lines, re.MULTILINE)
    assert f"uv pip install --no-cache --python {folder} " in lines
    assert f"ENV PATH={folder}/bin:$PATH" in lines


def test_the_page_and_the_image_say_the_same_of_how_it_is_built() -> None:
    """And nothing that only whoever releases Millstream can do."""
    page = (ROOT / "docs/deployment.md").read_text()
    steps = [line[4:] for line in (KUBERNETES / "Dockerfile").read_text().splitlines()[2:5]]
    assert [step.split("  #")[0] for step in steps if step.split("  #")[0] not in page] == []


def test_systemd_does_not_start_a_job_again_that_was_stopped() -> None:
    unit = (DEPLOY / "standalone/millstream-job.service").read_text()
    assert re.findall(r"^Restart=(.*)$", unit, re.MULTILINE) == ["on-failure"]


def script(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": "/usr/bin:/bin", "FOLDER": str(tmp_path), "SPARK_HOME": str(tmp_path)}
    command = [str(DEPLOY / "standalone/cluster.sh"), *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_a_cluster_without_spark_says_so(tmp_path: Path) -> None:
    done = script(tmp_path, "start", "master")
    assert done.returncode == 1
    assert "there is no Spark" in done.stderr
    assert script(tmp_path, "stop").stderr == ""


def test_a_process_that_has_the_number_of_an_old_master_is_left_alone(tmp_path: Path) -> None:
    """After a reboot numbers are given anew."""
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            (tmp_path / "master.pid").write_text(str(other.pid))
            assert "master: does not run" in script(tmp_path, "status").stdout
            assert script(tmp_path, "stop").stdout == ""
            assert other.poll() is None
        finally:
            other.kill()
