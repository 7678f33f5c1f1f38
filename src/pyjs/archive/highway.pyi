from typing import TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview

def highway_hash(name: bytes, data: _Buffer) -> bytes: ...
