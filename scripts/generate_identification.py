"""Write udpfast/include/parts/identification.h: kinds and hashes of layouts, for `udpfast.h`.

Usage: python scripts/generate_identification.py

Run it after a build with changed layouts, as `make layouts` does, and build again: the hashes come
from the compiled modules, which a build for `pip install` could not import without numpy.
"""

from pathlib import Path

from udpfast.log.ring import RING_KIND, RING_LAYOUT
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.market.updates import LAYOUTS, PAYLOAD_HASH
from udpfast.shm.image import IMAGE_KIND, IMAGE_LAYOUT
from udpfast.shm.names import NAMES_KIND, NAMES_LAYOUT

PATH = Path(__file__).parent.parent / "udpfast/include/parts/identification.h"


def identification() -> str:
    """Return the constants that the region headers of this version contain."""
    lines = (
        '#define UDPFAST_REGION_MAGIC "UDPFAST"  /* and its zero: 8 bytes */',
        f'#define UDPFAST_RING_KIND "{RING_KIND}"',
        f"#define UDPFAST_RING_LAYOUT UINT64_C(0x{RING_LAYOUT ^ PAYLOAD_HASH:016X})",
        f'#define UDPFAST_NAMES_KIND "{NAMES_KIND}"',
        f"#define UDPFAST_NAMES_LAYOUT UINT64_C(0x{NAMES_LAYOUT:016X})",
        f'#define UDPFAST_IMAGE_KIND "{IMAGE_KIND}"',
        f"#define UDPFAST_IMAGE_LAYOUT UINT64_C(0x{IMAGE_LAYOUT ^ ENTRY_HASH:016X})",
        f"#define UDPFAST_SEGMENT_LAYOUT UINT64_C(0x{LAYOUTS.hash:016X})",
    )
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    PATH.write_text(identification(), encoding="utf-8")
