"""Options of buckets and object stores: their effects, and combinations that are refused."""

from __future__ import annotations

import pytest

from pyjs_spark.errors import OptionError
from pyjs_spark.options.reading import check_batch, check_stream, parse_options
from pyjs_spark.options.tables import OWN
from pyjs_spark.options.values import Position


def test_buckets_are_streams_of_their_names() -> None:
    options = parse_options({"bucket": "CONFIG, app_*", "keys": "a.*,b", "includeDeletes": "true"})

    assert options.streams == ("KV_CONFIG", "KV_app_*")
    assert (options.buckets, options.keys) == (("CONFIG", "app_*"), ("a.*", "b"))
    assert (options.include_deletes, options.include_history, options.is_table) == (True, False, True)


def test_an_object_store_is_a_stream_of_its_name() -> None:
    options = parse_options({"objectStore": "files", "objects": "a.txt, b", "maxObjectSize": "1g"})

    assert options.streams == ("OBJ_files",)
    assert (options.objects, options.max_object_size) == (("a.txt", "b"), 1 << 30)


def test_offsets_of_buckets_name_buckets() -> None:
    options = parse_options({"bucket": "A,B", "startingOffsets": '{"A": 5, "B": "earliest"}'})

    assert options.starting_offsets == Position(streams=(("KV_A", 5), ("KV_B", "earliest")))
    assert parse_options({"bucket": "A", "startingOffsets": "latest"}).starting_offsets == Position("latest")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stream": "S", "bucket": "B"}, "options stream and bucket both say what to read; give one"),
        ({"bucket": "B", "objectStore": "O"}, "options bucket and objectStore both say what to read"),
        ({"bucket": "a.b"}, "option bucket=a.b is not allowed; allowed: names of buckets, comma separated"),
        ({"objectStore": "a*"}, "option objectStore=a* is not allowed; allowed: the name of one bucket"),
        ({"bucket": "B", "keys": "a..b"}, "option keys=a..b is not allowed"),
        (
            {"bucket": "B", "subjects": "a"},
            "option subjects does not go with bucket, only with stream; keys choo",
        ),
        ({"stream": "S", "keys": "a"}, "option keys does not go with stream, only with bucket; leave it out"),
        (
            {"stream": "S", "includeDeletes": "true"},
            "includeDeletes does not go with stream, only with bucket or",
        ),
        ({"objectStore": "O", "startingOffsets": "earliest"}, "startingOffsets does not go with objectStore"),
        ({"bucket": "B", "includeHeaders": "raw"}, "a schema that names the column headers has them"),
        ({"keys": "a"}, "option stream is missing: name the stream to read"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(given)

    assert said in str(caught.value)


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_option_of_a_kind_is_refused_with_another(name: str) -> None:
    others = [what for what in ("stream", "bucket", "objectStore") if what not in OWN[name]]
    for other in others:
        with pytest.raises(OptionError, match=f"option {name} does not go with {other}|is not allowed"):
            parse_options({other: "X", name: "1"})


def test_an_object_store_is_no_stream_of_changes() -> None:
    options = parse_options({"objectStore": "O"})

    check_batch(options)
    with pytest.raises(OptionError, match="objectStore is a batch read only"):
        check_stream(options)


def test_a_history_has_a_beginning_and_an_end() -> None:
    given = {
        "bucket": "B",
        "includeHistory": "true",
        "startingOffsets": '{"B": 2}',
        "endingOffsets": '{"B": 9}',
    }

    check_batch(parse_options(given))
