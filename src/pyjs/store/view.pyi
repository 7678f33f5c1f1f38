from pyjs.store.form import PlainImage

SOURCE_HASH: bytes

class View:
    size: int
    def __init__(self, image: PlainImage, size: int) -> None: ...
