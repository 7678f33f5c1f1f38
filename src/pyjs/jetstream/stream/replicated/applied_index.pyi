class AppliedIndex:
    index: int
    has_entry: bool
    def begin(self, index: int) -> None: ...
