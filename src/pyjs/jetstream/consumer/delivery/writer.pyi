SOURCE_HASH: bytes

class DeliveryWriter:
    headers_only: bool
    def __init__(self, prefix: bytes, other_prefix: bytes) -> None: ...
