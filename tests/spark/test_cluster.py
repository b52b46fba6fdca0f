"""A standalone cluster of Spark, of a master and a worker: the same tables as on this host."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.small_export import contents, write_export
from tests.waiting import wait_until
from udpfast.net.ports import free_port
from udpfast.spark.java import find_java

SEED = 20_261_126
#: What the JVM of executors does alone, and what they need udpfast in their Python for.
JOBS = ("losses", "races", "bars", "depth", "book")


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon of Spark, and end it."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    command = [str(home / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=log.parent, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def said(log: Path, words: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether a daemon, which is to live, has said these words."""
    assert process.poll() is None, log.read_text()
    return words in log.read_text()


@pytest.fixture
def cluster(installed: None, tmp_path: Path) -> Iterator[str]:
    """Return the address of a master with a worker of two cores."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master_log, worker_log = tmp_path / "master.log", tmp_path / "worker.log"
    package = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    with (
        daemon(master_log, f"{package}.master.Master", *here, "--port", str(port)) as master,
        daemon(
            worker_log,
            f"{package}.worker.Worker",
            *here,
            *("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work")),
            address,
        ) as worker,
    ):
        assert master.poll() is None, master_log.read_text()
        registered = "Successfully registered with master"
        wait_until(lambda: said(worker_log, registered, worker), "the worker to be registered")
        yield address


def run(master: str, export: Path, out: Path) -> None:
    """Run the jobs as a user would."""
    command = [sys.executable, "-m", "udpfast", "spark", "run", str(export), str(out)]
    command += ["--master", master, "--bar-s", "2"]
    for job in JOBS:
        command += ["--job", job]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_cluster_makes_the_tables_of_one_host(cluster: str, tmp_path: Path) -> None:
    export = tmp_path / "export"
    write_export(export, SEED)
    run(cluster, export, tmp_path / "cluster")
    run("local[2]", export, tmp_path / "local")
    assert list((tmp_path / "work").glob("app-*/*")), "no executor of the worker was used"
    for job in JOBS:
        expected = contents(tmp_path / "local", job)
        assert expected, job
        assert contents(tmp_path / "cluster", job) == expected, job
