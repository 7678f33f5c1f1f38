from collections.abc import Callable

from pyjs.core.session import ClientSession

class Infos:
    def __init__(self, describe: Callable[[ClientSession], bytes]) -> None: ...
