from pyjs.subjects.transform import SubjectTransform

class Rewrite:
    transform: SubjectTransform
    source: bytes
    def __init__(self, transform: SubjectTransform) -> None: ...
    def subject(self, subject: bytes) -> bytes | None: ...
