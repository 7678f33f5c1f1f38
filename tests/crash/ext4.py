"""An ext4 file system in an image file, which can lose unsynced data, run out of space, or become read-only.

Needs root and loop mounts. Shutting the file system down without a flush of its journal has the effect of a power
cut: after the next mount only data that fdatasync and fsync sent to the device, or that the kernel wrote back by
itself, is present.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

EXT4_IOC_SHUTDOWN = 2 << 30 | 4 << 16 | ord("X") << 8 | 125  # _IOR('X', 125, __u32)
GOING_FLAGS_NOLOGFLUSH = 2
TRIES = 50
COPY_AFTER = 10  # tries
TOOLS = ("mkfs.ext4", "mount", "umount")


class CannotMount(Exception):
    """This machine or user cannot mount an image; the text says why."""


def run_tool(*command: str) -> None:
    """Run a system command."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotMount(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


class Ext4:
    """One file system; `path` is where it is mounted."""

    def __init__(self, scratch: Path, megabytes: int = 256) -> None:
        if os.geteuid() != 0:
            raise CannotMount("mounting needs root")
        for tool in TOOLS:
            if shutil.which(tool) is None:
                raise CannotMount(f"there is no {tool}")
        self.path = scratch / "mounted"
        self._image = scratch / "image"
        self.path.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(megabytes << 20)
        run_tool("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.mount()

    def mount(self) -> None:
        """Mount the image, which replays its journal.

        The kernel may not have finished the previous mount, or another process may have inherited it: then it returns
        that mount again, which is already shut down. A copy of the image has no earlier mount.
        """
        for tried in range(1, TRIES + 1):
            run_tool("mount", "-o", "loop", str(self._image), str(self.path))
            try:
                (self.path / "probe").touch()
                (self.path / "probe").unlink()
                return
            except OSError as error:
                problem = error
                self.unmount()
                time.sleep(0.2)  # no event signals that the kernel has finished
                if tried % COPY_AFTER == 0:
                    self._copy_image()
        raise CannotMount(f"{self._image} was mounted, and then: {problem}")

    def _copy_image(self) -> None:
        copy = self._image.with_name("image.copy")
        run_tool("cp", "--sparse=always", str(self._image), str(copy))
        copy.replace(self._image)

    def unmount(self) -> None:
        """Unmount the image; no process may have files open in it."""
        run_tool("umount", str(self.path))

    def remount(self, option: str) -> None:
        """Remount the file system as `ro` or `rw`; for `ro`, no file may be open for writing."""
        run_tool("mount", "-o", f"remount,{option}", str(self.path))

    def sync(self) -> None:
        """Write everything to the present device."""
        run_tool("sync", "-f", str(self.path))

    def cut_power(self) -> None:
        """Accept no more writes, and drop all data that is not on the device."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", GOING_FLAGS_NOLOGFLUSH))
        finally:
            os.close(fd)
