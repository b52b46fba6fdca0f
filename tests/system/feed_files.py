"""Files of feeds on loopback."""

from pathlib import Path

from udpfast.net.ports import free_port


def feed(folder: Path, name: str, more: str = "", port: int = 0) -> Path:
    """Write the file of a feed on loopback; port 0: any free one."""
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\nobjects.collect_bytes = {1 << 20}\n'
        f"[ring]\ncapacity_bytes = {1 << 22}\n{more}\n"
        f'[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:{port or free_port()}"\n'
    )
    return path
