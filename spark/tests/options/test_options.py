"""Options: accepted values, refused values, and the texts of errors."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs_spark import subjects, times
from pyjs_spark.errors import OptionError
from pyjs_spark.options.reading import TABLE, check_batch, check_stream, parse_options
from pyjs_spark.options.tables import OWN
from pyjs_spark.options.values import Position
from pyjs_spark.read.plan import Span
from pyjs_spark.read.ranges import range_of
from pyjs_spark.store.place import StoreDirectory


def refused(**options: str) -> str:
    """Return the error text for these options."""
    with pytest.raises(OptionError) as caught:
        parse_options({"stream": "ORDERS", **options})
    return str(caught.value)


def test_a_stream_is_all_that_is_needed() -> None:
    options = parse_options({"stream": "ORDERS"})

    assert options.streams == ("ORDERS",)
    assert options.connect.servers == ("nats://127.0.0.1:4222",)
    assert (options.subjects, options.fail_on_data_loss, options.include_headers) == ((), True, "map")


def test_names_are_taken_in_any_case() -> None:
    options = parse_options({"STREAM": "ORDERS", "MaxRowsPerTrigger": "7", "tls.CA": "ca.pem"})

    assert (options.max_rows_per_trigger, options.connect.tls_ca) == (7, "ca.pem")


def test_the_stream_must_be_named() -> None:
    with pytest.raises(OptionError, match="option stream is missing"):
        parse_options({})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("streams", "stream"), ("startingOffset", "startingOffsets"), ("maxRowPerTriger", "maxRowsPerTrigger")],
)
def test_an_unknown_option_names_the_closest(name: str, meant: str) -> None:
    assert refused(**{name: "x"}) == f"option {name} is unknown; did you mean {meant}?"


def test_an_option_like_no_other_gets_the_whole_list() -> None:
    assert "there are account, apiPrefix, arrowBatchRows" in refused(zzzzzz="x")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("failOnDataLoss", "yes", "true or false"),
        ("minPartitions", "0", "a whole number from 1 to 100000"),
        ("minPartitions", "1.5", "a whole number"),
        ("maxRowsPerTrigger", "-1", "a whole number from 1"),
        ("maxRowsPerTrigger", "9223372036854775808", "a whole number from 1 to 9223372036854775807"),
        ("maxBytesPerTrigger", "5x", "a number of bytes"),
        ("maxTriggerDelay", "soon", "a duration"),
        ("fetchExpires", "0s", "a duration above zero"),
        ("requestTimeout", "99999999999d", "a duration above zero and up to 3650d"),
        ("readMode", "fast", "auto, consumer, direct or bulk"),
        ("includeHeaders", "yes", "map, raw or false"),
        ("stream", "a.b", "names of streams"),
        ("stream", "A,,B", "without empty parts"),
        ("subjects", "a..b", "subjects, comma separated"),
        ("subjects", "a.>.b", "subjects, comma separated"),
        ("startingOffsets", "middle", "earliest or latest or JSON"),
        ("startingOffsets", '{"ORDERS": 0}', "whole numbers from 1"),
        ("startingOffsets", '{"ORDERS": true}', "whole numbers from 1"),
        ("startingOffsets", "{}", "earliest or latest or JSON"),
        ("endingOffsets", "earliest", "latest or JSON"),
        ("startingTimestamp", "yesterday", "a time such as"),
        ("startingTimestamp", "2026-01-31T12:00:00", "with zone"),
        ("startingTimestamp", "2026-13-31T12:00:00Z", "a time such as"),
        ("jsDomain", "a.b", "the name of a domain"),
        ("apiPrefix", "$JS.*.API", "a subject without wildcards"),
        ("user", " ", "a text that is not empty"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    said = refused(**{name: value})

    assert said.startswith(f"option {name}={value} is not allowed; allowed: ")
    assert allowed in said
    assert "\n" not in said


def test_the_value_of_a_secret_is_not_shown() -> None:
    assert "(hidden)" in refused(password=" ", user="u")


def test_a_bad_address_is_refused_without_its_password() -> None:
    said = refused(servers="nats://a:4222,http://ann:pw@b:80")

    assert "addresses such as nats://host:4222" in said
    assert "http://***@b:80" in said
    assert "pw" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tls.cert": "c"}, "tls.cert is given without tls.key"),
        ({"tls.key": "k"}, "tls.key is given without tls.cert"),
        ({"password": "env:P"}, "password is given without user"),
        ({"jsDomain": "hub", "apiPrefix": "$JS.hub.API"}, "have the same meaning"),
        ({"minRowsPerTrigger": "9", "maxRowsPerTrigger": "8"}, "minRowsPerTrigger=9 is above"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay is given without minRowsPerTrigger"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "is after endingTimestamp"),
        ({"keyFile": "k"}, "keyFile is for reading a store directory; give path too"),
        ({"account": "A"}, "account is for reading a store directory; give path too"),
        ({"path": "/d", "servers": "a:4222"}, "servers is of a server, and path reads files without one"),
        ({"path": "/d", "requestTimeout": "1s"}, "requestTimeout is of a server"),
        ({"path": "/d", "fetchBatch": "1"}, "fetchBatch is of a server"),
        ({"path": "/d", "readMode": "bulk"}, "readMode=bulk asks a server"),
    ],
)
def test_values_that_contradict_each_other_are_refused(options: dict[str, str], said: str) -> None:
    assert said in refused(**options)


def test_a_batch_that_would_read_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="startingOffsets=latest is not allowed in a batch"):
        check_batch(parse_options({"stream": "S", "startingOffsets": "latest"}))
    check_batch(parse_options({"stream": "S"}))


@pytest.mark.parametrize("name", ["maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger"])
def test_a_batch_has_no_triggers(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is not allowed in a batch, which has no triggers"):
        check_batch(parse_options({"stream": "S", name: "5"}))


def test_filters_are_not_pushed_into_a_streaming_read() -> None:
    with pytest.raises(OptionError, match="option pushdown is not allowed in a streaming read"):
        check_stream(parse_options({"stream": "S", "pushdown": "true"}))


def test_filters_that_no_consumer_takes_are_refused_where_only_consumers_may_read() -> None:
    subjects = {"stream": "S", "subjects": "a.*,b,*.c"}
    keys = {"bucket": "B", "keys": "a.*,*.c"}
    said = r"no filters that overlap, as a\.\* and \*\.c of option {} do; use readMode=auto"

    for check, chosen, name in (
        (check_batch, subjects, "subjects"),
        (check_stream, subjects, "subjects"),
        (check_batch, keys | {"includeHistory": "true"}, "keys"),
        (check_stream, keys, "keys"),
    ):
        check(parse_options(chosen))
        with pytest.raises(OptionError, match=said.format(name)):
            check(parse_options(chosen | {"readMode": "consumer"}))
    # of the latest values, read by consecutive consumers
    check_batch(parse_options(keys | {"readMode": "consumer"}))


@pytest.mark.parametrize(
    ("name", "value"), [("endingOffsets", '{"S": 5}'), ("endingOffsets", "latest"), ("endingTimestamp", "5")]
)
def test_a_streaming_read_has_no_end(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not allowed in a streaming read"):
        check_stream(parse_options({"stream": "S", name: value}))
    check_stream(parse_options({"stream": "S"}))


def test_every_option_has_a_value_that_is_taken() -> None:
    given = {
        "stream": "ORDERS, KV_*",
        "subjects": "orders.>,orders.new,kv.*",
        "startingOffsets": '{"ORDERS": 12, "KV_A": "latest"}',
        "endingOffsets": '{"ORDERS": 99}',
        "startingTimestamp": "1769860800000",
        "endingTimestamp": "2026-02-01T00:00:00.000000001+01:00",
        "startingOffsetsByTimestamp": '{"ORDERS": 5}',
        "endingOffsetsByTimestamp": '{"ORDERS": "2026-02-01T00:00:00Z"}',
        "failOnDataLoss": "FALSE",
        "minPartitions": "4",
        "maxRecordsPerPartition": "1000",
        "maxRowsPerTrigger": "5000",
        "maxBytesPerTrigger": "64m",
        "minRowsPerTrigger": "10",
        "maxTriggerDelay": "90s",
        "readMode": "Consumer",
        "includeHeaders": "raw",
        "fetchBatch": "100",
        "fetchExpires": "500ms",
        "idleTimeout": "1m",
        "arrowBatchRows": "500",
        "pushdown": "true",
        "servers": "nats://a:4222,nats://b:4222",
        "user": "ann",
        "password": "env:SECRET",
        "token": "file:token.txt",
        "nkeySeedFile": "seed",
        "credsFile": "ann.creds",
        "tls.ca": "ca",
        "tls.cert": "cert",
        "tls.key": "key",
        "tls.hostname": "nats.example.org",
        "tls.first": "true",
        "jsDomain": "hub",
        "requestTimeout": "3",
    }
    of_tables = {"bucket", "objectStore"} | {name for name, what in OWN.items() if "stream" not in what}
    of_paths = {"path", "account", "keyFile"}
    assert {option.name for option in TABLE} - set(given) == {"apiPrefix"} | of_tables | of_paths
    options = parse_options(given)

    assert options.streams == ("ORDERS", "KV_*")
    assert options.subjects == ("orders.>", "kv.*")
    assert options.starting_offsets == Position(streams=(("KV_A", "latest"), ("ORDERS", 12)))
    assert options.starting_ns == 1769860800 * 10**9
    assert options.ending_ns == 1769900400 * 10**9 + 1
    assert (options.fail_on_data_loss, options.max_bytes_per_trigger) == (False, 64 << 20)
    assert (options.max_trigger_delay_s, options.fetch_expires_s, options.idle_timeout_s) == (90.0, 0.5, 60.0)
    assert (options.connect.api_prefix, options.connect.password) == ("$JS.hub.API", "env:SECRET")
    assert (options.connect.tls_first, options.connect.timeout_s) == (True, 3.0)
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_path_is_a_place_in_the_default_account() -> None:
    plain = parse_options({"stream": "S", "path": "/data"})
    told = parse_options(
        {"stream": "S", "path": "/data", "account": "A B", "keyFile": "/key", "readMode": "auto"}
    )

    assert plain.place == StoreDirectory("/data", "$G", "")
    assert told.place == StoreDirectory("/data", "A B", "/key")
    assert parse_options({"stream": "S"}).place is None


def test_a_streaming_read_of_a_path_is_refused() -> None:
    with pytest.raises(OptionError, match="path is not allowed in a streaming read"):
        check_stream(parse_options({"stream": "S", "path": "/data"}))


def test_rows_of_a_batch_are_those_of_the_way_unless_told() -> None:
    for more, expected in (({}, (10_000, 65_536)), ({"arrowBatchRows": "5"}, (5, 5))):
        what = range_of(parse_options({"stream": "S", **more}), Span("S", 1, 2, ""), ("seq",), ())
        assert (what.batch_rows, what.bulk_batch_rows) == expected


def test_an_api_prefix_loses_the_dot_at_its_end() -> None:
    assert parse_options({"stream": "S", "apiPrefix": "js.hub."}).connect.api_prefix == "js.hub"


def test_all_subjects_are_no_filter() -> None:
    assert parse_options({"stream": "S", "subjects": "a.b,>"}).subjects == ()


@pytest.mark.parametrize(
    ("wide", "narrow", "does"),
    [
        ("a.>", "a.b", True),
        ("a.>", "a.b.>", True),
        ("a.*", "a.b", True),
        ("a.*", "a.*", True),
        ("*.b", "a.*", False),
        ("a.*", "a.>", False),
        ("a.>", "a", False),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
    ],
)
def test_one_subject_covers_another(wide: str, narrow: str, does: bool) -> None:
    assert subjects.covers(wide, narrow) is does


@given(st.integers(min_value=0, max_value=4 * 10**18))
def test_a_time_survives_being_written_and_read(at_ns: int) -> None:
    assert times.parse_rfc3339(times.format_rfc3339(at_ns)) == at_ns
