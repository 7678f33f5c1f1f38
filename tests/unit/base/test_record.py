"""Records behave as the dataclasses whose words they use, and say of a wrong call what Python says."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest

from pyjs.base.record import field, field_names, record, replace


@record()
class Peer:
    """Who is there."""

    ip: str
    port: int
    kind: str = "nats"
    tags: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    @classmethod
    def local(cls) -> Peer:
        return cls("127.0.0.1", 4222)


@record(frozen=True)
class Place:
    line: int
    column: int = 1


@record(eq=False, repr=False)
class Secret:
    text: str = "hidden"


@record()
class Quick:
    size: int

    def __init__(self, size: int) -> None:
        self.size = size * 2


@dataclasses.dataclass(slots=True)
class Reference:
    ip: str
    port: int
    kind: str = "nats"
    tags: list[str] = dataclasses.field(default_factory=list)


def test_fields_come_by_position_by_name_or_from_their_defaults() -> None:
    assert Peer("::1", 1) == Peer(port=1, ip="::1") == Peer("::1", port=1, kind="nats", tags=[])
    assert Peer("::1", 1, "ws", ["a"]).kind == "ws"
    assert Peer.local().address == "127.0.0.1:4222"
    assert Peer.__doc__ == "Who is there."
    assert Peer.__qualname__ == "Peer"


def test_a_factory_makes_a_default_for_each_instance() -> None:
    one, other = Peer("a", 1), Peer("b", 1)

    one.tags.append("x")

    assert other.tags == []


@pytest.mark.parametrize(
    "call",
    [
        lambda cls: cls(),
        lambda cls: cls("a"),
        lambda cls: cls(port=1),
        lambda cls: cls(ip="a", kind="b"),
        lambda cls: cls("a", 1, "k", [], 5),
        lambda cls: cls("a", 1, "k", [], 5, 6, ip="b"),
        lambda cls: cls("a", 1, ip="b"),
        lambda cls: cls("a", 1, colour="red"),
        lambda cls: cls(colour="red"),
        lambda cls: cls(1, 2, 3, 4, 5, colour="red"),
    ],
)
def test_a_wrong_call_gets_the_words_of_python(call: Callable[[object], object]) -> None:
    with pytest.raises(TypeError) as expected:
        call(Reference)
    with pytest.raises(TypeError) as found:
        call(Peer)

    assert str(found.value) == str(expected.value).replace("Reference", "Peer")


def test_three_missing_fields_are_listed_as_python_lists_them() -> None:
    @record()
    class Three:
        a: int
        b: int
        c: int

    with pytest.raises(TypeError, match=r"missing 3 required positional arguments: 'a', 'b', and 'c'$"):
        Three()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"takes 4 positional arguments but 5 were given$"):
        Three(1, 2, 3, 4)  # type: ignore[call-arg]


def test_a_record_has_its_fields_and_no_others() -> None:
    peer = Peer("a", 1)

    with pytest.raises(AttributeError):
        peer.colour = "red"  # type: ignore[attr-defined]

    assert not hasattr(peer, "__dict__")
    assert field_names(Peer) == ("ip", "port", "kind", "tags")
    assert field_names(str) == ()


def test_a_frozen_record_refuses_changes() -> None:
    place = Place(3)

    with pytest.raises(AttributeError, match=r"^cannot assign to field 'line' of Place: it is frozen$"):
        place.line = 4  # type: ignore[misc]
    with pytest.raises(AttributeError, match=r"^cannot delete field 'line' of Place: it is frozen$"):
        del place.line

    assert place.line == 3


def test_records_are_equal_when_class_and_fields_are() -> None:
    assert Place(1, 2) == Place(1, 2)
    assert Place(1, 2) != Place(1, 3)
    assert Place(1, 2).__eq__((1, 2)) is NotImplemented
    assert Peer("a", 1).__eq__(Reference("a", 1)) is NotImplemented
    assert Secret() != Secret()


def test_only_frozen_records_and_those_compared_by_identity_have_a_hash() -> None:
    assert len({Place(1), Place(1), Place(2)}) == 2
    assert hash(Secret()) != 0
    with pytest.raises(TypeError, match="unhashable"):
        hash(Peer("a", 1))


def test_a_repr_shows_every_field_unless_it_was_left_out() -> None:
    assert repr(Peer("a", 1)) == "Peer(ip='a', port=1, kind='nats', tags=[])"
    assert repr(Place(1)) == "Place(line=1, column=1)"
    assert "hidden" not in repr(Secret())


def test_a_constructor_that_is_written_out_stays() -> None:
    quick = Quick(2)

    assert (quick.size, repr(quick)) == (4, "Quick(size=4)")


def test_replace_changes_some_fields_of_a_copy() -> None:
    place = Place(1, 2)

    assert replace(place, column=5) == Place(1, 5)
    assert place == Place(1, 2)
    with pytest.raises(TypeError, match=r"^Place.__init__\(\) got an unexpected keyword argument 'row'$"):
        replace(place, row=1)


def test_a_record_that_may_change_can_be_copied() -> None:
    peer = Peer("a", 1, tags=["x"])

    copied = copy.copy(peer)
    copied.port = 2

    assert (peer.port, copied) == (1, Peer("a", 2, tags=["x"]))


def test_a_default_that_all_instances_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Shared: all would share the list tags; use default_factory$"):

        @record()
        class Shared:
            tags: list[str] = []


def test_a_field_without_a_default_behind_one_with_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Mixed: b has no default and follows a, which has one$"):

        @record()
        class Mixed:
            a: int = 1
            b: int  # type: ignore[misc]
