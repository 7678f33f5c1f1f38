from pyjs.core.fair_queue import FairQueue


def taken(queue: FairQueue[str]) -> list[str]:
    """Take all items, each after a look at it."""
    firsts, items = [], []
    while queue.count:
        firsts.append(queue.first())
        items.append(queue.take()[1])
    assert firsts == items
    assert queue.first() is None
    return items


def test_accounts_take_turns_and_connections_within_them() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.add(("A", 1), f"a1.{number}")
    queue.add(("A", 2), "a2.0")
    queue.add(("B", 7), "b7.0")
    queue.add(("B", 7), "b7.1")

    assert taken(queue) == ["a1.0", "b7.0", "a2.0", "b7.1", "a1.1", "a1.2"]


def test_what_is_put_back_is_the_first_of_its_connection_and_behind_the_others() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add(("A", 1), "long")
    queue.add(("A", 1), "next")
    queue.add(("A", 2), "other")

    owner, item = queue.take()
    queue.put_back(owner, item)

    assert taken(queue) == ["other", "long", "next"]


def test_an_empty_queue_counts_nothing() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add(("A", 1), "x")
    queue.take()

    assert queue.count == 0
