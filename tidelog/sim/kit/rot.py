"""Damage at rest: changes of bytes that were safely on a disk.

Each function changes the durable content and the cache alike, as if the file had been read anew, and counts the fault.
None goes through the simulated file system, so none is an operation at which a planned crash could happen.
"""

from __future__ import annotations

from tidelog.sim.kit.inode import FileNode, put, resize
from tidelog.sim.kit.medium import Medium


def flip_bit(medium: Medium, path: str, position: int, bit: int = 0) -> None:
    """Flips one bit of a file."""
    node = _take(medium, path, "bit_flip")
    node.durable[position] ^= 1 << bit
    if position < len(node.data):  # else a process that was killed has truncated the file, and the disk has not yet
        node.data[position] ^= 1 << bit


def overwrite(medium: Medium, path: str, position: int, payload: bytes) -> None:
    """Overwrites bytes of a file: a zeroed sector, or a write that was meant for elsewhere."""
    node = _take(medium, path, "overwrite")
    for image in (node.data, node.durable):
        put(image, position, payload)


def truncate(medium: Medium, path: str, size: int) -> None:
    """Loses the end of the file: only its first `size` bytes are left."""
    node = _take(medium, path, "truncate")
    for image in (node.data, node.durable):
        resize(image, min(size, len(image)))


def make_unreadable(medium: Medium, path: str, position: int, size: int) -> None:
    """Makes reads of any of these bytes give EIO until they are written again (a latent sector error)."""
    _take(medium, path, "unreadable_range").unreadable.append((position, position + size))


def lose(medium: Medium, path: str) -> None:
    """Removes the file, name and all."""
    _take(medium, path, "lost_file")
    directory, name = medium.space.parent(path)
    del directory.names[name]
    directory.durable.pop(name, None)


def write_back(medium: Medium) -> None:
    """Makes all that is in the kernel's memory durable, names of files included, as a kernel does sooner or later."""
    for node in medium.dirty.values():
        node.sync()
    medium.dirty.clear()
    medium.space.sync()


def has_directory(medium: Medium, path: str) -> bool:
    """Returns True if there is a directory of that path."""
    try:
        medium.space.directory(path)
    except OSError:
        return False
    return True


def lose_directory(medium: Medium, path: str) -> None:
    """Removes a directory with everything in it."""
    medium.statistics.faults["lost_directory"] += 1
    for name, node in medium.walk().items():
        if name.startswith(f"{path}/"):
            medium.used_bytes -= len(node.data)
            medium.dirty.pop(node.number, None)
    medium.space.assign_durably({path: None})


def swap_directories(medium: Medium, first: str, second: str) -> None:
    """Exchanges the names of two directories."""
    medium.statistics.faults["swapped_directory"] += 1
    a, b = medium.space.directory(first), medium.space.directory(second)
    medium.space.assign_durably({first: b, second: a})


def plant(medium: Medium, path: str, content: bytes) -> None:
    """Writes a file durably, and makes its directories."""
    directory = medium.space.root
    *parents, name = path.split("/")
    for parent in parents:
        directory = medium.space.make_directory(directory, parent)
    node = medium.new_file()
    directory.names[name] = directory.durable[name] = node
    for image in (node.data, node.durable):
        put(image, 0, content)
    _take(medium, path, "planted_file")


def _take(medium: Medium, path: str, fault: str) -> FileNode:
    medium.statistics.faults[fault] += 1
    node = medium.space.find(path)
    assert isinstance(node, FileNode), path
    return node
