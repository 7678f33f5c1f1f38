from collections.abc import Iterable, Iterator

from pyjs.jetstream.stream import Stream

SOURCE_HASH: bytes

def window_parts(stream: Stream, part_ids: int) -> Iterator[dict[str, object]]: ...
def relearn(stream: Stream, now_ns: int, parts: Iterable[dict[str, object]] = ()) -> None: ...
