"""The C header says what the modules were compiled from, and a compiler lays it out like numpy."""

import re
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import udpfast
from udpfast.client.compiled import check_layouts
from udpfast.core import layout
from udpfast.log.ring import RING_LAYOUT
from udpfast.market import updates
from udpfast.market.updates import PAYLOAD_HASH

HEADER = Path(udpfast.get_include()) / "udpfast.h"

#: C struct: its numpy dtype. Fields of nested structs lie flat there.
DTYPES = {
    name.lower(): getattr(module, name)
    for module in (layout, updates)
    for name in module.__all__
    if isinstance(getattr(module, name), np.dtype)
}
NESTED = {"record": "frame"} | {
    name: "header"
    for name in (dtype.lower() for dtype in updates.__all__)
    if name not in ("level", "order", "trade", "statistic", "measurement", "tick_size_step")
}


def compiler() -> str:
    """Return the C compiler that Python itself was built with."""
    return str(sysconfig.get_config_var("CC")).split()[0]


def members() -> dict[str, list[str]]:
    """Return the field names of every struct in the header."""
    found = re.findall(r"^struct udpfast_(\w+) \{\n(.*?)\n\}", HEADER.read_text(), re.S | re.M)
    return {name: re.findall(r"(\w+)(?:\[\w+\])?;", body) for name, body in found}


def test_header_compiled_has_the_offsets_of_numpy(tmp_path: Path) -> None:
    """Every dtype that Python has is a struct there, field by field, and so are the constants."""
    structs = members()
    assert set(DTYPES) <= set(structs)
    lines = []
    for name, dtype in DTYPES.items():
        outer = f"struct udpfast_{name}"
        lines.append(f'printf("{name} size %zu\\n", sizeof({outer}));')
        for field in dtype.names:
            path = field if field in structs[name] else f"{NESTED[name]}.{field}"
            lines.append(f'printf("{name} {field} %zu\\n", offsetof({outer}, {path}));')
    for kind in layout.Kind:
        lines.append(f'printf("kind {kind.name} %d\\n", UDPFAST_KIND_{kind.name});')
    source = tmp_path / "offsets.c"
    includes = "#include <stddef.h>\n#include <stdio.h>\n#include <udpfast.h>\n"
    source.write_text(includes + "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
    strict = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}")
    subprocess.run([compiler(), *strict, "-o", tmp_path / "offsets", source], check=True)
    output = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True)
    expected = []
    for name, dtype in DTYPES.items():
        expected.append(f"{name} size {dtype.itemsize}")
        expected += [f"{name} {field} {dtype.fields[field][1]}" for field in dtype.names]
    expected += [f"kind {kind.name} {int(kind)}" for kind in layout.Kind]
    assert output.stdout.splitlines() == expected


def test_header_names_kinds_and_hashes_of_this_version() -> None:
    """`python scripts/generate_identification.py` writes them after a change of a layout."""
    script = HEADER.parents[2] / "scripts/generate_identification.py"
    assert runpy.run_path(str(script))["identification"]() in HEADER.read_text()


def test_header_is_also_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler (g++) on this host")
    source = tmp_path / "header.cpp"
    source.write_text('#include "udpfast.h"\nint main() { return UDPFAST_RECORD_SIZE - 64; }\n')
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}")
    subprocess.run(["g++", *strict, "-fsyntax-only", source], check=True)


def test_check_layouts_of_another_version_is_refused() -> None:
    check_layouts(RING_LAYOUT ^ PAYLOAD_HASH)
    with pytest.raises(ImportError, match="layout 0000000000000001"):
        check_layouts(1)
