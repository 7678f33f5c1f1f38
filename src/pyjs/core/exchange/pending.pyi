class PendingList:
    count: int
