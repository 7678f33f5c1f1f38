"""The table of command line flags, and its parser, which follows Go's rules.

This module knows nothing of files and processes. `-x` and `--x` are the same. A value follows as `-x=v` or as the
next word; a bool takes a value only as `-x=false`. Parsing stops at the first word that is not a flag, or after `--`.
Flags override the file, and a later flag overrides an earlier one.

Source: https://pkg.go.dev/flag "Command line flag syntax"; flags of nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.config.errors import Place, Problem, did_you_mean, suggestion
from pyjs.config.options import LOG_FORMATS, Options
from pyjs.config.ports.advertised import ADVERTISED_FIX, is_advertised
from pyjs.config.table import assign

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMMAND_LINE = ""  # stands for the file name in the Place of a problem with a flag

FlagValue = str | int | bool
Type = type[str] | type[int] | type[bool]

_BOOLS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True)
_BOOLS |= dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False)


class UsageError(Exception):
    """Raised for an invalid command line; the message states the reason."""


class Flag(NamedTuple):
    """A command line flag with all its names; the first name is its key in `CommandLine.flags`."""

    names: tuple[str, ...]
    type: Type
    attrs: tuple[str, ...]  # dotted attributes of Options; (): the flag concerns the command itself
    metavar: str
    help: str
    group: str = "Server"
    port: bool = False  # the value is a port number


def _flag(names: str, kind: Type, attrs: str, metavar: str, text: str, group: str = "Server") -> Flag:
    """Return a flag; `names` and `attrs` are strings of words, separated by spaces."""
    return Flag(tuple(names.split()), kind, tuple(attrs.split()), metavar, text, group, metavar == "<port>")


FLAGS = (
    _flag("addr a net", str, "host", "<host>", "listen on this address (default 0.0.0.0)"),
    _flag("port p", int, "port", "<port>", "listen on this port (default 4222, -1: any)"),
    _flag("name n server_name", str, "server_name", "<name>", "name of this server (default: its id)"),
    _flag("workers", int, "workers", "<n>", "processes that share the port for clients (default 1)"),
    _flag("spread_workers", bool, "jetstream.spread_workers", "", "put new streams into all workers"),
    _flag("pid P", str, "pid_file", "<file>", "write the process id to this file"),
    _flag("http_port m", int, "monitoring.http_port", "<port>", "serve monitoring on this port"),
    _flag("https_port ms", int, "monitoring.https_port", "<port>", "serve monitoring over TLS on this port"),
    _flag("config c", str, "", "<file>", "read this configuration file"),
    _flag("t", bool, "", "", "check the configuration file and exit"),
    _flag(
        "print_config print-config",
        bool,
        "",
        "",
        "print the configuration in effect, without secrets, and exit",
    ),
    _flag(
        "signal sl",
        str,
        "",
        "<signal>[=<pid>]",
        "send ldm, stop, quit, term, reopen or reload to a server (pid or pid file)",
    ),
    _flag("client_advertise", str, "client_advertise", "<host:port>", "address that clients are told"),
    _flag(
        "ports_file_dir", str, "ports_file_dir", "<dir>", "write a file with all ports into this directory"
    ),
    _flag("log l", str, "log.log_file", "<file>", "log to this file instead of standard error", "Logging"),
    _flag("logtime T", bool, "log.logtime", "", "put the time before log lines (default true)", "Logging"),
    _flag("logtime_utc", bool, "log.logtime_utc", "", "log in UTC instead of local time", "Logging"),
    _flag(
        "log_format log-format", str, "log.log_format", "<form>", "form of log lines: text or json", "Logging"
    ),
    _flag(
        "log_size_limit", int, "log.log_size_limit", "<bytes>", "rotate the log file at this size", "Logging"
    ),
    _flag(
        "max_traced_msg_len",
        int,
        "log.max_traced_msg_len",
        "<bytes>",
        "cut traced messages at this length",
        "Logging",
    ),
    _flag("debug D", bool, "log.debug", "", "log what helps to understand a connection", "Logging"),
    _flag("trace V", bool, "log.trace", "", "log the protocol", "Logging"),
    _flag("VV", bool, "log.trace log.trace_verbose", "", "trace the system account as well", "Logging"),
    _flag("DV", bool, "log.debug log.trace", "", "debug and trace", "Logging"),
    _flag("DVV", bool, "log.debug log.trace log.trace_verbose", "", "debug and verbose trace", "Logging"),
    _flag("jetstream js", bool, "jetstream.enabled", "", "turn JetStream on", "JetStream"),
    _flag("store_dir sd", str, "jetstream.store_dir", "<dir>", "keep streams in this directory", "JetStream"),
    _flag("user", str, "authorization.user", "<user>", "user that clients must name", "Authorization"),
    _flag("pass", str, "authorization.password", "<password>", "password of that user", "Authorization"),
    _flag("auth", str, "authorization.token", "<token>", "token that clients must send", "Authorization"),
    _flag("tls", bool, "", "", "encrypt clients, with the files below", "TLS"),
    _flag("tlscert", str, "tls.cert_file", "<file>", "certificate of the server", "TLS"),
    _flag("tlskey", str, "tls.key_file", "<file>", "its private key", "TLS"),
    _flag("tlsverify", bool, "tls.verify", "", "clients must show a certificate", "TLS"),
    _flag("tlscacert", str, "tls.ca_file", "<file>", "who may have signed certificates of clients", "TLS"),
    _flag(
        "cluster",
        str,
        "",
        "<url>",
        "listen for other servers at this URL (user and password in it)",
        "Cluster",
    ),
    _flag("cluster_listen", str, "", "<url>", "the same as --cluster", "Cluster"),
    _flag("routes", str, "", "<url,...>", "connect to these servers", "Cluster"),
    _flag("cluster_name", str, "cluster.name", "<name>", "name of the cluster", "Cluster"),
    _flag(
        "cluster_advertise",
        str,
        "cluster.advertise",
        "<host:port>",
        "address that other servers are told",
        "Cluster",
    ),
    _flag(
        "no_advertise", bool, "cluster.no_advertise", "", "do not tell clients of other servers", "Cluster"
    ),
    _flag(
        "connect_retries",
        int,
        "cluster.connect_retries",
        "<n>",
        "retries for a server that another told of",
        "Cluster",
    ),
    _flag("help h", bool, "", "", "show this text", "Common"),
    _flag("version v", bool, "", "", "show the version", "Common"),
)

# Flags of nats-server that have no effect here -> whether the flag takes a value.
UNSUPPORTED = {
    **dict.fromkeys(("r", "remote_syslog", "profile"), True),
    **dict.fromkeys(("s", "syslog", "help_tls"), False),
}

FLAG_BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


class CommandLine(NamedTuple):
    """The parsed command line: the flags by key, and the words after the flags.

    The flags are in the order of their last occurrence.
    """

    flags: dict[str, FlagValue]
    words: list[str]
    unsupported: str  # the first unsupported flag as typed, or ""


def parse_flags(argv: list[str]) -> CommandLine:
    """Parse `argv`, the command line without the name of the program.

    Raises:
        UsageError: a flag is unknown, or its value is invalid or missing.
    """
    flags: dict[str, FlagValue] = {}
    unsupported = ""
    words = iter(argv)
    for word in words:
        if not word.startswith("-") or word == "-":
            return CommandLine(flags, [word, *words], unsupported)
        if word == "--":
            return CommandLine(flags, list(words), unsupported)
        typed, has_value, text = word.partition("=")
        name = typed[2:] if typed.startswith("--") else typed[1:]
        if not name or name.startswith("-"):
            raise UsageError(f"bad flag syntax: {word}")
        if name in UNSUPPORTED:
            unsupported = unsupported or typed
            if UNSUPPORTED[name] and not has_value:
                next(words, None)
            continue
        flag = FLAG_BY_NAME.get(name)
        if flag is None:
            raise UsageError(_unknown(typed, name))
        value = _read_value(flag, name, text if has_value else None, words)
        flags.pop(flag.names[0], None)
        flags[flag.names[0]] = value
    return CommandLine(flags, [], unsupported)


def _unknown(typed: str, name: str) -> str:
    near = did_you_mean(name, [*FLAG_BY_NAME, *UNSUPPORTED])
    hint = f"; did you mean {'-' if typed[:2] != '--' else '--'}{near}?" if near else ""
    return f"flag provided but not defined: -{name}{hint}"


def _read_value(flag: Flag, name: str, text: str | None, words: Iterator[str]) -> FlagValue:
    if flag.type is bool:
        value = _BOOLS.get("true" if text is None else text)
        if value is None:
            raise UsageError(
                f'invalid boolean value "{text}" for -{name}: write -{name}=true or -{name}=false'
            )
        return value
    if text is None:
        text = next(words, None)
    if text is None:
        raise UsageError(f"flag needs an argument: -{name}")
    if flag.type is str:
        return text
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f'invalid value "{text}" for flag -{name}: write a whole number') from None


def apply_flags(
    options: Options, flags: Mapping[str, FlagValue], places: dict[str, Place]
) -> Iterator[Problem]:
    """Set the options that `flags` name, add their places to `places`, and yield the problems."""
    place = Place(COMMAND_LINE, 0, 0)
    for name, value in flags.items():
        flag = FLAG_BY_NAME[name]
        if flag.port and not -1 <= int(value) <= 65535:
            yield Problem(
                place, f"--{name} is {value}, no port", "use a port from 1 to 65535, or -1 for any free one"
            )
        elif flag.type is int and int(value) < (-1 if flag.port else 0):
            yield Problem(place, f"--{name} is {value}, less than 0", "use a number from 0")
        if name == "log_format" and value not in LOG_FORMATS:
            fix = suggestion(str(value), LOG_FORMATS, "use text or json")
            yield Problem(place, f'--log_format is "{value}"', fix)
        if name in ("client_advertise", "cluster_advertise") and not is_advertised(str(value)):
            yield Problem(place, f'--{name} is "{value}", which is no host or host:port', ADVERTISED_FIX)
        for attr in flag.attrs:
            assign(options, attr, value)
            places["authorization" if attr.startswith("authorization.") else attr] = place
    options.host = options.host or Options().host
    options.port = options.port or Options().port
    if any(FLAG_BY_NAME[name].group == "TLS" and value for name, value in flags.items()):
        yield from _check_certificate(options, place)
    yield from _apply_credentials(options, flags, place)
    if "cluster" in flags or "cluster_listen" in flags or "routes" in flags:
        from pyjs.config.ports.cluster import apply_cluster_flags

        yield from apply_cluster_flags(options, flags, place)


def _check_certificate(options: Options, place: Place) -> Iterator[Problem]:
    """Yield a problem if the server has no TLS certificate, or if the private key is missing."""
    tls = options.tls
    if not tls.certificates:
        yield Problem(place, "TLS Server certificate must be present and valid", "add --tlscert")
    elif tls.cert_file and not tls.key_file:
        yield Problem(place, "TLS Server private key must be present and valid", "add --tlskey")


def _apply_credentials(options: Options, flags: Mapping[str, FlagValue], place: Place) -> Iterator[Problem]:
    """If the flags give a user, remove the file's token; if they give a token, remove the user. Yield problems."""
    single = options.authorization
    if "auth" in flags and ("user" in flags or "pass" in flags):
        yield Problem(place, "--auth and --user are given together", "use a token or a user with a password")
    elif "auth" in flags:
        single.user = single.password = ""
    elif "user" in flags:
        single.token = ""
    if single.password and not single.user:
        yield Problem(place, "--pass is given without a user", "add --user")


def usage(program: str) -> str:
    """Return the text that --help shows."""
    lines = [
        f"Usage: {program} [options]",
        f"       {program} fsck [--repair] [--json] [--quiet] [--key-file FILE] STORE_DIR    check stored streams",
        f"       {program} import [-c FILE] [-sd DIR] SOURCE_DIR    copy the streams of a stopped nats-server",
        f"       {program} doctor [-c FILE] [--json] [options]    check whether this machine can run the server",
        f"       {program} plan -c FILE [--server HOST:PORT] [--json]    show which declared streams would change",
        f"       {program} trace [-s URL] [options] CID    log the protocol of one connection of a running server",
        f"       {program} alias DIRECTORY    make a link named nats-server to this program",
    ]
    group = ""
    for flag in FLAGS:
        if flag.group != group:
            group = flag.group
            lines += ["", f"{group} options:"]
        names = ", ".join(
            f"-{name}" if len(name) <= 2 or name.isupper() else f"--{name}"
            for name in sorted(flag.names, key=len)
        )
        lines.append(f"    {names + ' ' + flag.metavar:<38} {flag.help}")
    return "\n".join(lines)
