from typing import final

@final
class Pacing:
    def __init__(self, burst_size: int) -> None: ...
