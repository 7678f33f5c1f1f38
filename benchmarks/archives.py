"""MB/s of frames of an archive: written, read, and the checksum alone.

python -m benchmarks.archives
"""

from __future__ import annotations

import time

from pyjs.archive.frames import BLOCK_SIZE, FrameReader, FrameWriter
from pyjs.archive.s2 import masked_crc

SIZE = 64 << 20


def rate(seconds: float) -> str:
    return f"{SIZE / seconds / 1e6:.0f} MB/s"


def main() -> None:
    data = b"".join(b"orders.%d one loaf of bread, " % number for number in range(2000))
    data = (data * (SIZE // len(data) + 1))[:SIZE]
    began = time.perf_counter()
    writer = FrameWriter()
    packed = writer.add(data) + writer.finish()
    written = time.perf_counter()
    assert sum(len(part) for part in FrameReader().add(packed)) == SIZE
    read = time.perf_counter()
    for at in range(0, SIZE, BLOCK_SIZE):
        masked_crc(data[at : at + BLOCK_SIZE])
    summed = time.perf_counter()
    print(f"write {rate(written - began)}, read {rate(read - written)}, checksum {rate(summed - read)}")


if __name__ == "__main__":
    main()
