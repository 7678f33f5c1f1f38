class ViewCache:
    held: int
    def __init__(self, held_max: int = ...) -> None: ...
    def __len__(self) -> int: ...

class View:
    size: int
