from typing import NamedTuple

class Share(NamedTuple):
    items: int
    ns: int
    stride: int = 1
    few: int = 0
