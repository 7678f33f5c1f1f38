from pyjs.jetstream.config.stream import StreamConfig

class StreamLimits:
    def read(self, config: StreamConfig) -> None: ...
