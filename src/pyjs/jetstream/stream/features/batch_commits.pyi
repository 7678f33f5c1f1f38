from pyjs.jetstream.stream.features.batch_checks import State
from pyjs.jetstream.stream.features.batches import BatchUsage
from pyjs.jetstream.stream.stream import Stream

class BatchCommits:
    def __init__(self, stream: Stream, state: State, usage: BatchUsage) -> None: ...
    def finish(self) -> None: ...
