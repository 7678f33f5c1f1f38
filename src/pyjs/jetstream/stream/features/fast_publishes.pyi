from pyjs.core.sink import Sink
from pyjs.jetstream.stream.features.fast_batches import FastBatches
from pyjs.jetstream.stream.stream import Stream

class FastPublishes(Sink):
    batches: FastBatches
    def __init__(self, stream: Stream, state: object, batches: FastBatches) -> None: ...
