"""The session, and the Java below it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from udpfast.spark.java import JavaMissingError, find_java, java_version
from udpfast.spark.session import (
    INTERPRETED,
    SparkStartError,
    archived,
    check_workers,
    is_local,
    open_session,
    settings_for,
)


def install(home: Path, version: str) -> Path:
    """Make what looks like a Java."""
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").touch(mode=0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Take away what the machine itself has."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return monkeypatch


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("1.8.0_412", 8), ("25", 25)])
def test_java_version_is_read_from_its_release_file(
    tmp_path: Path, text: str, version: int
) -> None:
    assert java_version(install(tmp_path / "jvm", text)) == version


def test_java_version_of_nothing_is_zero(tmp_path: Path) -> None:
    assert java_version(tmp_path) == 0


def test_find_java_takes_the_oldest_that_is_new_enough(
    tmp_path: Path, bare: pytest.MonkeyPatch
) -> None:
    for version in ("25.0.1", "1.8.0", "17.0.2", "21.0.3"):
        install(tmp_path / f"java-{version}", version)
    assert find_java(tmp_path).name == "java-17.0.2"


def test_find_java_takes_java_home_first(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    home = install(tmp_path / "own", "21.0.3")
    install(tmp_path / "jvm/java-17", "17.0.2")
    bare.setenv("JAVA_HOME", str(home))
    assert find_java(tmp_path / "jvm") == home


def test_find_java_without_one_says_in_one_line_what_to_install(
    tmp_path: Path, bare: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "java-8", "1.8.0")
    with pytest.raises(JavaMissingError) as caught:
        find_java(tmp_path)
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer ({tmp_path}/java-8 is 8): "
        "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    )


@pytest.mark.parametrize(
    ("master", "partitions"),
    [
        ("local", "2"),
        ("local[1]", "2"),
        ("local[8]", "16"),
        ("local[2,4]", "4"),
        ("local[*]", str(2 * (os.cpu_count() or 1))),
    ],
)
def test_settings_of_a_local_master_fit_its_cores(master: str, partitions: str) -> None:
    assert settings_for(master)["spark.sql.shuffle.partitions"] == partitions


def test_settings_of_a_cluster_leave_its_own_alone() -> None:
    found = settings_for("spark://host:7077")
    assert not is_local("spark://host:7077")
    assert "spark.driver.host" not in found
    assert "spark.sql.shuffle.partitions" not in found
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_workers_run_this_python_and_this_udpfast(spark) -> None:
    import udpfast

    def look(batches):
        import pyarrow

        import udpfast

        for _ in batches:
            yield pyarrow.RecordBatch.from_pylist(
                [{"python": sys.executable, "file": udpfast.__file__}]
            )

    (row,) = (
        spark.range(1, numPartitions=1).mapInArrow(look, "python string, file string").collect()
    )
    assert (row.python, row.file) == (sys.executable, udpfast.__file__)


def test_worker_is_forked_with_what_it_imports(spark) -> None:
    def look(batches):
        parent = Path(f"/proc/{os.getppid()}")
        command = parent.joinpath("cmdline").read_bytes().split(b"\0")
        mapped = parent.joinpath("maps").read_text()
        for batch in batches:
            found = b"udpfast.spark.daemon" in command and "libarrow_python" in mapped
            yield batch.from_pylist([{"found": found}])

    rows = spark.range(1, numPartitions=1).mapInArrow(look, "found boolean").collect()
    assert [row.found for row in rows] == [True]


@pytest.mark.parametrize(("begin", "kept"), [("", True), ("threading.Thread(target=wait)", False)])
def test_daemon_with_a_thread_of_somebody_keeps_nothing(begin: str, kept: bool) -> None:
    begun = f"{begin}.start()" if begin else "pass"
    program = f"""if True:
        import os, sys, threading
        from pathlib import Path

        import pyspark.daemon

        import udpfast.spark.daemon

        def wait():
            threading.Event().wait(60)

        sys.argv = ["daemon", "pyspark.worker"]
        pyspark.daemon.manager = lambda: print("pyarrow" in sys.modules)
        os.execv = lambda *_: print("anew", os.environ["UDPFAST_SPARK_PLAIN_DAEMON"]) or os._exit(0)
        {begun}
        sys.stdout.reconfigure(line_buffering=True)
        udpfast.spark.daemon.main()
    """
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout == ("True\n" if kept else "anew 1\n")


def test_queries_of_a_quick_session_are_not_compiled(spark) -> None:
    plan = spark.range(3).selectExpr("id + 1 AS next").where("next > 1")
    assert "WholeStageCodegen" not in plan._jdf.queryExecution().executedPlan().treeString()
    assert [row.next for row in plan.collect()] == [2, 3]
    assert not settings_for("local[2]").keys() & INTERPRETED.keys()


def test_session_shows_instants_in_utc(spark) -> None:
    (row,) = spark.sql("SELECT CAST(timestamp_micros(0) AS STRING) AS t").collect()
    assert row.t == "1970-01-01 00:00:00"


def test_master_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    def refuse(builder: object) -> None:
        raise Py4JError(
            "An error occurred.\n: SparkException: Could not parse Master URL\n\tat a.B"
        )

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    monkeypatch.setattr("udpfast.spark.session.find_java", lambda: Path("/nowhere"))
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    with pytest.raises(SparkStartError) as caught:
        open_session("spark:7077")
    text = str(caught.value)
    assert "'spark:7077'" in text
    assert text.endswith("SparkException: Could not parse Master URL")


def test_other_python_on_the_workers_is_said_in_one_line(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'udpfast'\" >&2\nexit 1\n"
    )
    python.chmod(0o755)
    with pytest.raises(SparkStartError) as caught:
        check_workers(str(python))
    assert "\n" not in str(caught.value)
    assert "No module named 'udpfast'; set PYSPARK_PYTHON=" in str(caught.value)
    with pytest.raises(SparkStartError, match="there is no such program"):
        check_workers(str(tmp_path / "python4"))
    check_workers(sys.executable)


def test_format_is_found_from_another_directory(tmp_path: Path) -> None:
    # As Spark looks for it: in the folders of sys.path.
    code = "import pkgutil; print(*(each.name for each in pkgutil.iter_modules()))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert "pyspark_udpfast" in found.stdout.decode().split()


def test_archive_that_is_none_says_nothing_and_keeps_java_from_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "udpfast.jsa"
    assert archived(archive) == ""
    archive.write_text("no archive")
    java = [find_java() / "bin/java", *archived(archive).split(), "-version"]
    result = subprocess.run(java, capture_output=True, text=True, check=True)
    assert result.stdout == ""
    assert str(archive) in str(java) and len(result.stderr.splitlines()) == 3


ARCHIVE = """
import pathlib, sys
from udpfast.spark import archive, session
session.archive_path = archive.archive_path = lambda: pathlib.Path(sys.argv[1])
archive.main()
"""
ARCHIVED = f"""{ARCHIVE.replace("archive.main()", "")}
java = session.open_session("local").sparkContext._gateway.proc
print(sys.argv[1] in pathlib.Path(f"/proc/{{java.pid}}/maps").read_text())
"""


@pytest.mark.nightly  # a minute; what a session starts with is tested above
def test_archive_is_made_and_used(installed: None, tmp_path: Path) -> None:
    for code, said in ((ARCHIVE, ""), (ARCHIVED, "True\n"), (ARCHIVE, "")):
        command = [sys.executable, "-c", code, str(tmp_path / "udpfast.jsa")]
        assert subprocess.check_output(command, text=True) == said
    assert [path.name for path in tmp_path.iterdir()] == ["udpfast.jsa"]
