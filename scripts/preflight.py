"""Check that this machine can build udpfast, and say in one line what is missing.

A build needs Python 3.11 with venv, a C compiler and the headers of Python; free memory in
/dev/shm is advised. If something is missing, root installs it by apt-get; otherwise one line says
what to install, and the exit code is 4. The script uses the standard library only, and must parse
on any Python 3.

    preflight.py          what building needs
    preflight.py spark    what Spark needs: Java 17 or newer; udpfast must be installed
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig

PYTHON_WANTED = (3, 11)
SHM_ADVISED_BYTES = 192 << 20  # one Roq feed with the defaults takes 167: docs/operating.md
EXIT_MISSING = 4
JAVA_PACKAGE = "openjdk-17-jre-headless"


def missing_packages():
    """Return the Debian packages to install, each with what it provides."""
    version = "python{}.{}".format(*sys.version_info[:2])
    found = []
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        found.append(("gcc", "a C compiler ({})".format(compiler)))
    if not os.path.exists("/usr/include/stdlib.h"):
        found.append(("libc6-dev", "the C library's headers"))
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        found.append((version + "-dev", "Python.h"))
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        found.append((version + "-venv", "venv and ensurepip"))
    return found


def install(packages):
    """Install packages by apt-get; return whether that succeeded."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    update = ["apt-get", "update", "-qq"]
    fetch = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"] + packages
    subprocess.call(update, env=environment, **quiet)
    return subprocess.call(fetch, env=environment, **quiet) == 0


def warn_of_small_shm():
    """Print a warning if a feed with the default settings would not fit into /dev/shm."""
    try:
        state = os.statvfs("/dev/shm")
    except OSError:
        print("udpfast: no /dev/shm here: name another directory for the rings by UDPFAST_SHM")
        return
    free = state.f_bavail * state.f_frsize
    if free < SHM_ADVISED_BYTES:
        print(
            "udpfast: /dev/shm has {} MiB free, {} are advised: "
            "mount -o remount,size=1g /dev/shm".format(free >> 20, SHM_ADVISED_BYTES >> 20)
        )


def can_install():
    """Whether this process is root on a machine that has apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def look_for_java():
    """Find a Java that can run Spark, or install one if possible; return the exit code."""
    from udpfast.spark.java import JavaMissingError, find_java

    try:
        find_java()
    except JavaMissingError as error:
        if can_install():
            print("udpfast: installing {} by apt-get for Spark".format(JAVA_PACKAGE), flush=True)
            install([JAVA_PACKAGE])
        try:
            find_java()
        except JavaMissingError:
            print("udpfast: {}".format(error))
            return EXIT_MISSING
    return 0


def main():
    """Check this machine, install what is missing if possible, and return the exit code."""
    if sys.version_info < PYTHON_WANTED:
        print(
            "udpfast needs Python {}.{} or newer, {} is {}.{}: "
            "install one and run make PYTHON=...".format(
                *PYTHON_WANTED, sys.executable, *sys.version_info[:2]
            )
        )
        return EXIT_MISSING
    missing = missing_packages()
    if missing and can_install():
        packages = [package for package, _ in missing]
        print("udpfast: installing {} by apt-get".format(" ".join(packages)), flush=True)
        install(packages)
        importlib.invalidate_caches()
        missing = missing_packages()
    if missing:
        print(
            "udpfast needs {}: apt-get install {}".format(
                ", ".join(what for _, what in missing),
                " ".join(package for package, _ in missing),
            )
        )
        return EXIT_MISSING
    warn_of_small_shm()
    return 0


if __name__ == "__main__":
    sys.exit(look_for_java() if sys.argv[1:] == ["spark"] else main())
