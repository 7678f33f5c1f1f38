from typing import final

@final
class Pacing:
    rate_bps: int
    hold_until: int
    def __init__(self, burst_size: int) -> None: ...
