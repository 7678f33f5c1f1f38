from __future__ import annotations

import pytest

from pyjs.config.flags import (
    FLAG_BY_NAME,
    FLAGS,
    UNSUPPORTED,
    CommandLine,
    FlagValue,
    UsageError,
    apply_flags,
    parse_flags,
    usage,
)
from pyjs.config.options import Options


def flags(*argv: str) -> dict[str, FlagValue]:
    return parse_flags(list(argv)).flags


@pytest.mark.parametrize(
    "argv",
    [("-p", "5"), ("--p", "5"), ("-port=5",), ("--port=5",), ("--port", "5"), ("-p=0x5",), ("-p=1", "-p=5")],
)
def test_a_value_may_be_given_in_each_way(argv: tuple[str, ...]) -> None:
    assert flags(*argv) == {"port": 5}


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        ("-js", True),
        ("--js", True),
        ("-js=true", True),
        ("--jetstream=T", True),
        ("-js=false", False),
        ("-js=0", False),
    ],
)
def test_a_bool_takes_its_value_behind_an_equals_sign_only(argv: str, value: bool) -> None:
    assert flags(argv) == {"jetstream": value}
    assert parse_flags([argv, "false"]).words == ["false"]


def test_a_value_may_look_like_a_flag_or_hold_an_equals_sign() -> None:
    assert flags("-p", "-1", "--signal=ldm=12", "--auth", "a=b") == {
        "port": -1,
        "signal": "ldm=12",
        "auth": "a=b",
    }


def test_reading_stops_at_the_first_word() -> None:
    assert parse_flags(["-D", "foo", "-V"]) == CommandLine({"debug": True}, ["foo", "-V"], "")
    assert parse_flags(["-D", "--", "-V"]) == CommandLine({"debug": True}, ["-V"], "")
    assert parse_flags(["-"]) == CommandLine({}, ["-"], "")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-bogus"], "flag provided but not defined: -bogus"),
        (["--prot", "5"], "flag provided but not defined: -prot; did you mean --port?"),
        (["-jetstrem"], "did you mean -jetstream?"),
        (["---x"], "bad flag syntax: ---x"),
        (["-=x"], "bad flag syntax: -=x"),
        (["-p"], "flag needs an argument: -p"),
        (["-p", "abc"], 'invalid value "abc" for flag -p'),
        (["-DV=maybe"], 'invalid boolean value "maybe" for -DV'),
    ],
)
def test_what_cannot_be_read_is_told(argv: list[str], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_flags(argv)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_flag_is_kept_as_typed_and_takes_its_value(name: str) -> None:
    argv = [f"--{name}", "value"] if UNSUPPORTED[name] else [f"--{name}"]
    assert parse_flags([*argv, "-D"]) == CommandLine({"debug": True}, [], f"--{name}")
    assert parse_flags([f"-{name}=x", "--profile=y"]).unsupported == f"-{name}"


SAMPLE: dict[type, FlagValue] = {str: "x", int: 7, bool: True}


@pytest.mark.parametrize("flag", FLAGS, ids=[flag.names[0] for flag in FLAGS])
def test_a_flag_changes_the_attributes_that_it_names(flag: object) -> None:
    assert isinstance(flag, type(FLAGS[0]))
    options = Options()
    value: FlagValue = False if flag.names[0] == "logtime" else SAMPLE[flag.type]
    if flag.names[0] in ("cluster", "cluster_listen", "routes"):
        value = "nats://127.0.0.1:6222"
    elif flag.names[0] == "log_format":
        value = "json"
    given = {flag.names[0]: value} if flag.names[0] != "pass" else {"user": "u", "pass": value}
    if flag.group == "TLS":
        given = {"tlscert": "a", "tlskey": "b"} | given
    assert list(apply_flags(options, given, {})) == []
    for attr in flag.attrs:
        target: object = options
        for step in attr.split("."):
            target = getattr(target, step)
        assert target == value


def test_the_cluster_flags_set_the_block() -> None:
    options = Options()
    given: dict[str, FlagValue] = {
        "cluster": "nats://u:p@127.0.0.1:-1",
        "routes": "nats://u:p@10.0.0.1:6222, 10.0.0.2:6223",
    }
    assert list(apply_flags(options, given, {})) == []
    block = options.cluster
    assert (block.host, block.port) == ("127.0.0.1", -1)
    assert (block.authorization.user, block.authorization.password) == ("u", "p")
    assert [(url.host, url.port, url.user) for url in block.routes] == [
        ("10.0.0.1", 6222, "u"),
        ("10.0.0.2", 6223, ""),
    ]


@pytest.mark.parametrize("flag", ["cluster", "routes"])
def test_a_cluster_flag_that_is_no_address_is_refused_without_its_password(flag: str) -> None:
    (problem,) = apply_flags(Options(), {flag: "http://u:hush@h:1"}, {})
    assert "is no address of a route" in problem.cause
    assert "hush" not in problem.cause


def test_a_form_of_the_log_that_does_not_exist_is_refused() -> None:
    (problem,) = apply_flags(Options(), {"log_format": "jsn"}, {})

    assert (problem.cause, problem.fix) == ('--log_format is "jsn"', 'did you mean "json"?')


@pytest.mark.parametrize("flag", ["client_advertise", "cluster_advertise"])
@pytest.mark.parametrize("address", ["h:x", "h:99999", "h:" + "9" * 5000, "h:\u00b2", "::1", ":1", "a b"])
def test_an_address_that_nobody_can_reach_is_refused(flag: str, address: str) -> None:
    (problem,) = apply_flags(Options(), {flag: address}, {})

    assert problem.cause == f'--{flag} is "{address}", which is no host or host:port'


def test_flags_that_nats_server_has_are_all_known() -> None:
    names = """a addr net p port n name server_name P pid m http_port ms https_port c config t sl signal
        client_advertise ports_file_dir l log T logtime logtime_utc s syslog r remote_syslog log_size_limit
        max_traced_msg_len D V VV DV DVV debug trace js jetstream sd store_dir user pass auth tls tlscert tlskey
        tlsverify tlscacert routes cluster cluster_listen cluster_name no_advertise cluster_advertise
        connect_retries profile h help v version help_tls"""
    own = {"workers", "spread_workers", "log_format", "log-format", "print_config", "print-config"}
    assert set(names.split()) | own == set(FLAG_BY_NAME) | set(UNSUPPORTED)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"port": 99999}, "--port is 99999, no port"),
        ({"http_port": -2}, "--http_port is -2, no port"),
        ({"log_size_limit": -1}, "--log_size_limit is -1, less than 0"),
        ({"user": "a", "auth": "b"}, "--auth and --user are given together"),
        ({"pass": "a"}, "--pass is given without a user"),
    ],
)
def test_a_flag_with_a_wrong_value_is_told_with_a_fix(given: dict[str, FlagValue], cause: str) -> None:
    problems = [str(problem) for problem in apply_flags(Options(), given, {})]
    assert len(problems) == 1
    assert problems[0].startswith(f"{cause}; ")


def test_nothing_stands_for_the_default() -> None:
    options = Options()
    assert list(apply_flags(options, {"addr": "", "port": 0}, {})) == []
    assert (options.host, options.port) == ("0.0.0.0", 4222)


def test_later_flags_win() -> None:
    options = Options()
    assert list(apply_flags(options, flags("-DVV", "-V=false"), {})) == []
    assert (options.log.debug, options.log.trace, options.log.trace_verbose) == (True, False, True)


def test_usage_names_every_flag() -> None:
    text = usage("pyjs-server")
    for name in FLAG_BY_NAME:
        assert f"-{name}" in text
    assert max(map(len, text.splitlines())) <= 120
