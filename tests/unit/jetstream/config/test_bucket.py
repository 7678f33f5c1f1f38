"""The streams of buckets; tests/system/test_declared.py compares them with those that clients create."""

from __future__ import annotations

from pyjs.jetstream.config.bucket import KeyValueConfig, ObjectStoreConfig
from pyjs.jetstream.config.stream import ExternalStream, StreamSource, SubjectTransformConfig

MINUTE_NS = 60_000_000_000


def test_a_key_value_bucket_is_a_stream() -> None:
    stream = KeyValueConfig(history=5, compression=True).stream("b")
    assert (stream.name, stream.subjects, stream.max_msgs_per_subject) == ("KV_b", ("$KV.b.>",), 5)
    assert (stream.discard, stream.compression, stream.allow_direct) == ("new", "s2", True)
    assert stream.deny_delete
    assert stream.allow_rollup_hdrs
    assert not stream.allow_msg_ttl


def test_a_short_lifetime_shortens_the_duplicate_window() -> None:
    assert KeyValueConfig(ttl_ns=MINUTE_NS).stream("b").duplicate_window_ns == MINUTE_NS
    assert KeyValueConfig(ttl_ns=9 * MINUTE_NS).stream("b").duplicate_window_ns == 2 * MINUTE_NS
    assert KeyValueConfig().stream("b").duplicate_window_ns == 2 * MINUTE_NS


def test_markers_need_lifetimes_of_messages() -> None:
    stream = KeyValueConfig(limit_marker_ttl_ns=MINUTE_NS).stream("b")
    assert stream.allow_msg_ttl
    assert stream.subject_delete_marker_ttl_ns == MINUTE_NS


def test_zero_is_no_limit() -> None:
    stream = KeyValueConfig(max_bytes=0, max_value_size=0).stream("b")
    assert (stream.max_bytes, stream.max_msg_size) == (-1, -1)
    assert ObjectStoreConfig(max_bytes=0).stream("o").max_bytes == -1


def test_a_mirror_has_no_subjects() -> None:
    for name in ("a", "KV_a"):
        stream = KeyValueConfig(mirror=StreamSource(name)).stream("b")
        assert stream.mirror == StreamSource("KV_a")
        assert stream.subjects == ()
        assert stream.mirror_direct


def test_keys_of_a_source_get_the_prefix_of_the_bucket() -> None:
    moved = (SubjectTransformConfig("$KV.a.>", "$KV.b.>"),)
    for name in ("a", "KV_a"):
        assert KeyValueConfig(sources=(StreamSource(name),)).stream("b").sources == (
            StreamSource("KV_a", subject_transforms=moved),
        )


def test_a_source_with_transforms_or_of_the_same_name_elsewhere_is_used_as_it_is() -> None:
    own = StreamSource("events", subject_transforms=(SubjectTransformConfig("e.>", "$KV.b.>"),))
    elsewhere = StreamSource("KV_b", external=ExternalStream("$JS.hub.API", ""))
    assert KeyValueConfig(sources=(own, elsewhere)).stream("b").sources == (own, elsewhere)


def test_an_object_store_is_a_stream() -> None:
    stream = ObjectStoreConfig(ttl_ns=MINUTE_NS, compression=True).stream("o")
    assert (stream.name, stream.subjects) == ("OBJ_o", ("$O.o.C.>", "$O.o.M.>"))
    assert (stream.max_age_ns, stream.discard, stream.compression) == (MINUTE_NS, "new", "s2")
    assert stream.allow_direct
    assert stream.allow_rollup_hdrs
    assert not stream.deny_delete
