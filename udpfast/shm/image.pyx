"""The region of an image in Python. The protocol is in `image.pxd`."""

from pathlib import Path

from udpfast.errors import RegionError
from udpfast.shm.files import replace_file

__all__ = [
    "IMAGE_KIND", "IMAGE_LAYOUT", "Image", "ImageView", "has_image", "image_path", "note_image",
]

#: Kind of an image's region.
IMAGE_KIND = "IMAG"

#: Version of ImageHeader and ImageSlot.
IMAGE_LAYOUT = 1

if sizeof(ImageSlot) != IMAGE_SLOT_SIZE:
    raise ImportError(f"ImageSlot has {sizeof(ImageSlot)} bytes, not {IMAGE_SLOT_SIZE}")


cdef class Image:
    """The writing end of an image. One process, one thread.

    Attributes
    ----------
    region : Region
    """

    @staticmethod
    def create(
            path: str | os.PathLike[str], slots: int, size_bytes: int, entry_hash: int,
            huge: bool = False) -> Image:
        """Create an empty image, in place of a dead writer's.

        Parameters
        ----------
        path : str or path
            The image's file, or an instance's directory (then its file `image`).
        slots : int
            Most entries.
        size_bytes : int
            Memory for the entries, each of which is stored twice.
        entry_hash : int
            Hash of the layouts of the entries; readers must pass the same one.
        huge : bool
            Ask the kernel for pages of 2 MiB, as far as it has them.

        Raises
        ------
        WriterExistsError
            A living process writes the image.
        """
        if not 1 <= slots <= IMAGE_SLOTS_MAX:
            raise ValueError(f"slots must be 1 to {IMAGE_SLOTS_MAX}, was {slots}")
        cdef Image image = Image.__new__(Image)
        cdef Py_ssize_t begin = IMAGE_SLOTS + slots * IMAGE_SLOT_SIZE
        cdef Region region = Region.create(
            image_path(path), IMAGE_KIND, begin + size_bytes, IMAGE_LAYOUT ^ entry_hash,
            replace=True, huge=huge)
        image.region = region
        image.writer.memory = region.pointer
        image.writer.slots = <ImageSlot*>(region.pointer + IMAGE_SLOTS)
        image.writer.slots_count = slots
        image.writer.next = begin
        image.writer.end = region.size_bytes
        (<ImageHeader*>region.pointer).slots = slots
        region.mark_ready()
        return image

    def put(self, slot: int, entry: Buffer) -> bool:
        """Replace one entry; return whether there was room. For tests: agents use C."""
        cdef const uint8_t[::1] view = entry
        cdef uint8_t* place
        if self.region.pointer == NULL:
            raise ValueError(f"image {self.region.path} is closed")
        if not 0 <= slot < self.writer.slots_count:
            raise IndexError(
                f"slot must be below {self.writer.slots_count}, the number of slots, was {slot}")
        place = image_begin(&self.writer, slot, view.shape[0])
        if place == NULL:
            return False
        if view.shape[0]:
            memcpy(place, &view[0], view.shape[0])
        image_end(&self.writer, slot)
        return True

    def close(self) -> None:
        """Release the region. Its entries stay. Idempotent."""
        self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


cdef class ImageView:
    """The reading end of an image, which maps it read-only.

    Attributes
    ----------
    region : Region
    """

    @staticmethod
    def attach(path: str | os.PathLike[str], entry_hash: int) -> ImageView:
        """Attach to an image.

        Parameters
        ----------
        path : str or path
            The image's file, or an instance's directory (then its file `image`).
        entry_hash : int
            The same value as given to `Image.create`.

        Raises
        ------
        RegionError
            The file is not an image, or has another layout.
        """
        cdef ImageView view = ImageView.__new__(ImageView)
        cdef Region region = Region.attach(
            image_path(path), IMAGE_KIND, IMAGE_LAYOUT ^ entry_hash, populate=False)
        cdef uint64_t slots
        view.region = region
        if region.size_bytes < IMAGE_SLOTS:
            raise RegionError(f"{region.path}: expected {IMAGE_SLOTS} bytes or more, "
                              f"found {region.size_bytes}")
        slots = (<ImageHeader*>region.pointer).slots
        if not 1 <= slots <= (<uint64_t>region.size_bytes - IMAGE_SLOTS) // IMAGE_SLOT_SIZE:
            raise RegionError(f"{region.path}: expected slots that fit {region.size_bytes} bytes, "
                              f"found {slots}")
        view.reader.memory = region.pointer
        view.reader.slots = <const ImageSlot*>(region.pointer + IMAGE_SLOTS)
        view.reader.slots_count = slots
        view.reader.size = region.size_bytes
        return view

    @property
    def slots(self) -> int:
        """Most entries that the image can have."""
        return self.reader.slots_count

    def entry(self, slot: int) -> bytes | None:
        """Return a copy of one entry; None if it was never written.

        Raises
        ------
        RegionError
            The slot is corrupt, or was replaced at every attempt to copy it.
        """
        cdef int64_t size
        if self.region.pointer == NULL:
            raise ValueError(f"image {self.region.path} is closed")
        if not 0 <= slot < self.reader.slots_count:
            raise IndexError(
                f"slot must be below {self.reader.slots_count}, the number of slots, was {slot}")
        room = bytearray(4096)
        cdef uint8_t[::1] out = room
        while True:
            size = image_copy(&self.reader, slot, &out[0], out.shape[0])
            if size != -EMSGSIZE:
                break
            room = bytearray(int.from_bytes(room[:8], "little"))
            out = room
        if size < 0:
            raise RegionError(
                f"{self.region.path}: expected a complete entry in slot {slot}, found none")
        return bytes(room[:size]) if size else None

    def close(self) -> None:
        """Detach. Idempotent."""
        self.region.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


def image_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of an image's file; for an instance's directory, its file `image`."""
    path = Path(path)
    return path / "image" if path.is_dir() else path


def note_image(directory: Path, kept: bool) -> None:
    """Tell readers whether a feed keeps an image, before they find the feed.

    Until its keeper has begun, an empty file stands for it. Where a feed works and there is no
    file, nobody needs to wait for one.

    Parameters
    ----------
    directory : Path
        The instance's directory.
    kept : bool
        False: remove the image of an earlier run.
    """
    path = directory / "image"
    if not kept:
        path.unlink(missing_ok=True)
    elif not path.exists():
        replace_file(path, b"")


def has_image(directory: Path) -> bool:
    """Return whether a keeper has begun the image of an instance; it may be dead by now."""
    try:
        return (directory / "image").stat().st_size > 0
    except FileNotFoundError:
        return False
