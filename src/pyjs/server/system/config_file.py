"""The configuration file, read as text.

This module imports only the standard library, since the command reads its configuration before it checks for missing
packages.
"""

from __future__ import annotations

import errno
import os
import stat

CONFIG_SIZE_MAX = 8 << 20  # bytes of one configuration file


def read_file(path: str) -> str:
    """Return the text of a configuration file; invalid UTF-8 is preserved ("surrogateescape").

    Raises:
        OSError: the file cannot be read, is not a regular file, or is too large.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait for the writer of a FIFO
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        with open(fd, "rb", closefd=False) as file:
            data = file.read(CONFIG_SIZE_MAX + 1)
    finally:
        os.close(fd)
    if len(data) > CONFIG_SIZE_MAX:
        raise OSError(errno.EFBIG, f"larger than {CONFIG_SIZE_MAX} bytes", path)
    return data.decode("utf-8", "surrogateescape")
