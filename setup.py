"""Build the extension modules from every `.pyx` below `udpfast/` and, if asked, bench and lab.

UDPFAST_NATIVE=1    Compile for this machine's processor only.
UDPFAST_BENCH=1     Build the benchmarks and the lab too; `make` sets this.
UDPFAST_COMPILE=0   Compile nothing: to install a tree that was compiled in place.
UDPFAST_OPTIMISE=0  Optimisation level of all modules (0 to 3): 0 is quick, to inspect a package.
UDPFAST_SANITIZE=1  AddressSanitizer and UndefinedBehaviorSanitizer (run with libasan preloaded).
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext


def setting(name: str, default: str = "") -> bool:
    """Return whether the environment turns a build option on."""
    return os.environ.get(name, default) not in ("", "0")


NATIVE = setting("UDPFAST_NATIVE")
SANITIZE = setting("UDPFAST_SANITIZE")

compile_args = ["-fno-plt", "-g0", "-O" + os.environ.get("UDPFAST_OPTIMISE", "2")]
# pip shows no compiler warnings, and checking for them takes 4 % of its time.
warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
compile_args += warnings if setting("UDPFAST_BENCH") else ["-w"]
link_args = []
if NATIVE:
    compile_args.append("-march=native")
if SANITIZE:
    # Undefined behaviour ends the process, as a bad address does, so that a finding is a failure.
    compile_args += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]
    compile_args += ["-fno-omit-frame-pointer", "-O1", "-UNDEBUG"]
    link_args += ["-fsanitize=address,undefined"]

directives = {
    "language_level": 3,
    # Loops that run for each record use pointers; indexing is for the rest, with bounds checks.
    "boundscheck": True,
    "wraparound": False,
    # With it Cython 3.3 refuses `self.count += 1` in a nogil method.
    "nonecheck": False,
    "cdivision": True,
    "emit_code_comments": False,  # a third of the C; `cython -a` shows the source beside it
    "freethreading_compatible": True,
    # The classes hold memory, files or sockets: copying their fields would not copy them.
    "auto_pickle": False,
    # Annotations are for stubs (scripts/generate_stubs.py), and use names that modules do not
    # import.
    "annotation_typing": False,
    # There would be hundreds, nearly all where they do not matter. `cython -a` shows them.
    "show_performance_hints": False,
}


#: How the C of each module begins. To read it was 8 % of the time to compile; GCC reads what is
#: compiled of it much faster.
HEADERS = """\
#define PY_SSIZE_T_CLEAN
#include "Python.h"
"""
#: Modules for which it pays to compile the headers first, at four levels of optimisation.
MANY = 20


def c_compiler() -> str:
    """Return the program that compiles C."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


class Build(build):
    """`build` that compiles first: otherwise pip shows 700 copied files before an error."""

    sub_commands = sorted(build.sub_commands, key=lambda command: command[0] != "build_ext")


class BuildExt(build_ext):
    """`build_ext` on all cores, which reports a missing compiler in one line."""

    failed = False

    def finalize_options(self) -> None:
        """Compile as many modules at once as there are cores, unless told otherwise."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Check for a C compiler and Python's headers, find what changed, and build it."""
        compiler = c_compiler()
        header = Path(sysconfig.get_path("include")) / "Python.h"
        if shutil.which(compiler) is None:
            sys.exit(f"udpfast needs a C compiler, {compiler!r} was not found: apt-get install gcc")
        if not header.exists():
            sys.exit(
                f"udpfast needs Python's headers, {header} was not found: "
                "apt-get install python3-dev"
            )
        # Only now: packing the sources or asking for the version, as pip does often, needs it not.
        from Cython.Build import cythonize

        generating = [subprocess.Popen([sys.executable, *each]) for each in generated()]
        # pip shows it with -v.
        count = len(self.extensions)
        print(f"udpfast: compiling what changed of {count} modules on {self.parallel} cores")
        for extension in self.extensions:
            self.forget_other_flags(extension)
        # Before anything is translated.
        self.before = {each.name: self.compiled_from(each) for each in self.extensions}
        self.begun_ns = time.time_ns()
        self.translation = runpy.run_path("scripts/translate.py")
        self.translation["hasten"]()
        made = cythonize(
            self.extensions,
            build_dir="build/cython",
            compiler_directives=directives,
            shared_utility_qualified_name=SHARED,
            force=self.force,
            quiet=True,  # two lines for each module would bury warnings
        )
        self.sources = {extension.name: extension.sources for extension in made}
        super().run()
        if any(each.wait() for each in generating):
            sys.exit("udpfast: stubs or udpfast.h could not be generated")
        if self.inplace:
            remove_without_source()
            if changed := changed_since(self.begun_ns):
                sys.exit(f"udpfast: {changed[0]} changed while it was compiled: build again")

    def build_extensions(self) -> None:
        """Compile Python's headers once, if there is much to compile; then the modules."""
        with tempfile.TemporaryDirectory() as folder:
            if list(self.before.values()).count(None) > MANY and is_gcc() and not SANITIZE:
                self.compile_headers(Path(folder))
            super().build_extensions()

    def compile_headers(self, folder: Path) -> None:
        """Compile Python's headers with the flags of each module, and let modules read that.

        The modules are the same as without.
        """
        compiler = [*self.compiler.compiler_so, *(f"-I{path}" for path in self.include_dirs)]
        compiling = []
        for extension in self.extensions:
            flags = extension.extra_compile_args
            header = folder / f"{''.join(flags)}.h"
            if not header.exists():
                header.write_text(HEADERS)
                made = ["-x", "c-header", header, "-o", f"{header}.gch"]
                compiling.append(subprocess.Popen([*compiler, *flags, *made]))
            extension.extra_compile_args = [*flags, "-include", str(header)]
        for each in compiling:
            each.wait()  # without what it makes GCC reads the headers themselves

    def build_extension(self, extension: Extension) -> None:
        """Translate and compile what changed of a module, unless another one has failed."""
        if self.failed:
            return
        try:
            known = self.before.pop(extension.name)
            self.translation["translated"](c_source(extension))
            date_back(c_source(extension), self.begun_ns)
            # A changed `.pxd` seldom changes the C of all modules that include it.
            if known is not None and known == c_source(extension).read_bytes():
                os.utime(self.built(extension))
            extension.sources = self.sources[extension.name]
            super().build_extension(extension)
        except BaseException:
            self.failed = True
            self.translation["give_up"]()
            raise

    def forget_other_flags(self, extension: Extension) -> None:
        """Drop what was built of a module with other flags than the present ones; note the flags.

        A module without a note was built elsewhere, and is kept.
        """
        arguments = extension.extra_compile_args, extension.extra_link_args
        flags = repr((directives, *arguments, extension.define_macros))
        note = Path("build", "flags", extension.name)
        if note.exists() and note.read_text() != flags:
            c_source(extension).unlink(missing_ok=True)
            self.built(extension).unlink(missing_ok=True)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(flags)

    def compiled_from(self, extension: Extension) -> bytes | None:
        """Return the C from which a module was compiled; None: it was not compiled, or has no C."""
        source, module = c_source(extension), self.built(extension)
        if not source.exists() or not module.exists():
            return None
        newer = source.stat().st_mtime_ns > module.stat().st_mtime_ns
        return None if newer else source.read_bytes()

    def built(self, extension: Extension) -> Path:
        """Return where a module is built; `--inplace` copies it from there."""
        return Path(self.build_lib, self.get_ext_filename(self.get_ext_fullname(extension.name)))


def is_gcc() -> bool:
    """Return whether the compiler is GCC itself: ccache keeps nothing that reads such headers."""
    compiler = shutil.which(c_compiler())
    return compiler is not None and "gcc" in Path(compiler).resolve().name


def date_back(made: Path, begun_ns: int) -> None:
    """Make the C that a build wrote as old as the build's beginning.

    A source that changed since then is newer, so that the next build translates it again.
    """
    if made.stat().st_mtime_ns > begun_ns:
        os.utime(made, ns=(begun_ns, begun_ns))


def changed_since(begun_ns: int) -> list[Path]:
    """Return the sources that changed since a build began: it may have read them before that."""
    paths = [path for folder in folders() for path in sorted(Path(folder).rglob("*.p[xy][xd]"))]
    return [path for path in paths if path.stat().st_mtime_ns > begun_ns]


def remove_without_source() -> None:
    """Remove compiled modules without a source: they would hide a `.py` of the same name."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    places = [Path(folder) for folder in ("udpfast", *BESIDE)]
    for module in [path for place in places for path in place.rglob(f"*{suffix}")]:
        stem = module.name.removesuffix(suffix)
        if stem != SHARED.rpartition(".")[2] and not module.with_name(f"{stem}.pyx").exists():
            module.unlink()


def generated() -> list[list[str]]:
    """Return the commands that write stubs and the C header; both only read sources."""
    return [
        ["scripts/generate_stubs.py", *folders()],
        ["scripts/generate_header.py", "udpfast/include/udpfast.h"],
    ]


def write_schema() -> None:
    """Write what is generated from Roq's schema, unless it is there and up to date."""
    generate = runpy.run_path("udpfast/payload/roq/generate.py")
    generate["write_schema"]()


def c_source(extension: Extension) -> Path:
    """Return the path of the C that Cython writes for a module."""
    source = extension.sources[0] if extension.sources else extension.name.replace(".", os.sep)
    return Path("build", "cython", source).with_suffix(".c")


#: Macros of Cython's C.
MACROS = [
    # Tracebacks show no lines of the C, so that all errors of a line share their code.
    ("CYTHON_CLINE_IN_TRACEBACK", "0"),
    # A bound method that is called by another name is called as it is: its object and function are
    # not taken apart wherever anything is called, which would be 4 % of the time to compile.
    ("CYTHON_UNPACK_METHODS", "0"),
    # Integers are converted by Python's functions, not by code for each of a dozen C types that
    # looks into them: 3 % of the time.
    ("CYTHON_USE_PYLONG_INTERNALS", "0"),
]

#: Modules that begin, end, watch or describe something, or that call what takes longer than they do
#: (Python, ZeroMQ, a link, a disk). A feed's loop runs none of them for each record, and they would
#: take three times as long to compile with -O2.
SELDOM = {
    Path("udpfast", f"{name}.pyx")
    for name in (
        *("_cython", "agents/feed/load", "agents/feed/output", "agents/feed/recorder"),
        *("agents/feed/engine_settings", "agents/feed/feed_loop", "agents/feed/feed_names"),
        *("agents/feed/feed_state", "agents/feed/image_keeper", "agents/feed/republisher"),
        *("agents/feed/wanted", "agents/bus/link_thread"),
        *("agents/zmq/zmq_last", "agents/zmq/zmq_envelopes", "agents/zmq/zmq_streams"),
        *("archive/feed_cursor", "archive/store"),
        *("bus/link_seal", "bus/wire"),
        *("bus/link_receiver", "bus/link_sender", "bus/outbox_sender"),
        *("client/aio", "client/arrow", "client/callbacks", "client/merged_source"),
        *("client/copied_names", "client/image_doubts"),
        *("client/history_seam", "client/history_source", "client/image_join"),
        *(
            "client/journal_source",
            "client/composite_copy",
            "client/composite_source",
            "client/reader",
        ),
        "client/store_source",
        *("client/zmq_silence", "client/zmq_source", "core/agent"),
        *("core/fault", "core/idle", "core/memory"),
        *("core/layout", "core/oserr", "core/parent", "core/worker", "export/hops"),
        *("export/races", "feed/pipeline", "log/journal_header"),
        *("log/journal_state", "log/readers", "log/recorded_runs", "log/recovery"),
        *("log/segment", "market/gate", "market/names", "market/updates"),
        *("net/capture_writer", "net/envelope", "net/pcap", "net/xdp_bpf"),
        *("payload/traits", "shm/answers"),
        *("shm/counters", "shm/histogram", "shm/image", "shm/mapping", "shm/region", "shm/wake"),
        *("wire/frame", "wire/framing"),
    )
}

#: Modules that run for each record, but mostly wait for the system, ZeroMQ or Python. They would
#: take 1.7 times as long to compile with -O2.
CALLING = {
    Path("udpfast", f"{name}.pyx")
    for name in (
        *("agents/feed/recording", "agents/feed/replayer", "agents/zmq/zmq_fanout"),
        *("agents/relay/relay", "agents/relay/relay_feed", "agents/relay/relay_lines"),
        *("agents/relay/relay_output", "agents/relay/relay_rounds", "client/publisher"),
        *("net/departures", "probe/outgoing", "probe/reflector"),
    )
}

#: Loops over datagrams, records and levels, which gain from unrolling and inlining.
OFTEN = {
    Path("udpfast", f"{name}.pyx")
    for name in (
        *("agents/feed/engine", "feed/publication", "feed/slots", "log/ring"),
        *("market/block", "market/market", "market/state"),
        *("market/state_bytes", "net/datagram", "net/sender"),
        "payload/venue",
        *("payload/roq/decode", "payload/roq/encode", "payload/roq/flatbuffer"),
        *("payload/roq/vtable_plan", "payload/sbe/plan"),
    )
}


def arguments(path: Path) -> list[str]:
    """Return the compiler arguments for a module. The last `-O` counts."""
    if SANITIZE or "UDPFAST_OPTIMISE" in os.environ:
        return compile_args
    if path in SELDOM or path.parts[0] == "lab":
        return [*compile_args, "-Og"]
    if path in CALLING:
        return [*compile_args, "-O1"]
    return [*compile_args, "-O3"] if path in OFTEN or path.parts[0] == "bench" else compile_args


#: Folders of the checkout that become packages on request. They are called `udpfast_bench` and
#: `udpfast_lab`, because other packages may have the names `bench` and `lab`.
BESIDE = ("bench", "lab")


def folders() -> tuple[str, ...]:
    """Return the folders whose modules are compiled."""
    return ("udpfast", *BESIDE) if setting("UDPFAST_BENCH") else ("udpfast",)


def sources() -> list[Path]:
    """Return the modules to compile."""
    return [path for folder in folders() for path in sorted(Path(folder).rglob("*.pyx"))]


write_schema()
extensions = [
    Extension(
        re.sub("^(bench|lab)/", r"udpfast_\1/", str(path.with_suffix(""))).replace(os.sep, "."),
        [str(path)],
        extra_compile_args=arguments(path),
        extra_link_args=link_args,
        # The flags of a build, which the results of a benchmark state.
        define_macros=[
            ("UDPFAST_BUILD_FLAGS", f'"{" ".join(arguments(path))}"'),
            *MACROS,
        ],
    )
    for path in sources()
]
# Cython's own code, memoryviews above all, once: inside each module it was a third of the C. First,
# because it takes long: no core shall wait for it in the end.
SHARED = "udpfast._cython"
compiled_with = arguments(Path("udpfast", "_cython.pyx"))
extensions.insert(
    0, Extension(SHARED, [], extra_compile_args=compiled_with, extra_link_args=link_args)
)

# Without what they compile they measure and try nothing.
packages_beside = [
    *("udpfast_bench", "udpfast_bench.loops", "udpfast_bench.peers"),
    *("udpfast_lab", "udpfast_lab.conformance"),
]

setup(
    cmdclass={"build": Build, "build_ext": BuildExt},
    packages=[
        *find_packages(include=["udpfast", "udpfast.*"]),
        "pyspark_udpfast",
        *(packages_beside if setting("UDPFAST_BENCH") else []),
    ],
    package_dir={f"udpfast_{folder}": folder for folder in BESIDE},
    ext_modules=extensions if setting("UDPFAST_COMPILE", "1") else [],
)
