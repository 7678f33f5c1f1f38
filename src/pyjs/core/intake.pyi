from pyjs.core.link import Link

class Intake:
    def __init__(self, link: Link) -> None: ...
