"""The `tls` block of a port, which is for clients, for WebSocket clients or for routes.

This module reads names and values; server/tls/context.py reads and checks the certificates. A list of curves and the
system's certificate store can only be used with Go's TLS, so the keys for them are refused.

Source: nats.docs "Enabling TLS"; behaviour of nats-server 2.15.1, tests/conformance/test_tls.py.
"""

from __future__ import annotations

from pyjs.base.units import parse_duration_ns
from pyjs.config.errors import Refused, suggestion
from pyjs.config.kinds import (
    BOOL,
    DURATION,
    INT,
    INT32_MAX,
    PATH,
    STRING,
    STRINGS,
    AtLeast,
    Between,
    fill,
)
from pyjs.config.options import NS_PER_S, ClusterOptions, Options, TlsOptions, WebSocketOptions
from pyjs.config.table import Key, Kind, Reading, Table, Unsupported, wrong_type
from pyjs.config.tls_names import CURVES, INSECURE, SUITES, SUITES_1_3
from pyjs.config.values import Value

AUTO_NS = 50_000_000  # time that INFO waits with `handshake_first: auto`
DIGEST_SIZE = 64  # hex digits of a SHA-256
PAIR = "cert_file: server.pem, key_file: key.pem"


def _read_timeout(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a duration, or a number of seconds that may have a fraction, and return it in nanoseconds."""
    if isinstance(value.data, float | int) and not isinstance(value.data, bool):
        if not 0 < value.data <= INT32_MAX:
            raise Refused(value.place, f'"timeout" is {value.data} seconds', 'write "2s" for instance')
        return int(value.data * NS_PER_S)
    return DURATION.read(reading, key, value, target)


def _read_handshake_first(reading: Reading, key: Key, value: Value, target: object) -> object:
    if isinstance(value.data, bool):
        return 0 if value.data else -1
    fix = 'write true, false, auto, or how long to wait for the client: "300ms"'
    if not isinstance(value.data, str):
        raise wrong_type(key, value, "true, false, auto or a duration", fix)
    if value.data.lower() in ("true", "false", "on", "off", "yes", "no"):
        return 0 if value.data.lower() in ("true", "on", "yes") else -1
    if value.data.lower() == "auto":
        return AUTO_NS
    try:
        wait_ns = parse_duration_ns(value.data)
    except ValueError:
        wait_ns = -1
    if wait_ns <= 0:
        raise Refused(value.place, f'"{key.name}" is "{value.data}"', fix)
    return wait_ns


def _read_pins(reading: Reading, key: Key, value: Value, target: object) -> object:
    pins = STRINGS.read(reading, key, value, target)
    assert isinstance(pins, tuple)
    for pin in pins:
        if len(pin) != DIGEST_SIZE or not set(pin.lower()) <= set("0123456789abcdef"):
            cause = f'"pinned_certs" has "{pin}", which is no SHA-256 in hex'
            raise Refused(value.place, cause, "write the SHA-256 of the DER form of a SubjectPublicKeyInfo")
    return tuple(pin.lower() for pin in pins)


def _read_version(reading: Reading, key: Key, value: Value, target: object) -> object:
    version = STRING.read(reading, key, value, target)
    if version not in ("1.2", "1.3"):
        raise Refused(value.place, f'unsupported TLS version "{version}"', 'write "1.2" or "1.3"')
    return version


def _read_suites(reading: Reading, key: Key, value: Value, target: object) -> object:
    names = STRINGS.read(reading, key, value, target)
    assert isinstance(names, tuple)
    for name in names:
        if name in INSECURE:
            raise Refused(value.place, f"the cipher suite {name} is not safe", "remove it")
        if name not in SUITES and name not in SUITES_1_3:
            fix = suggestion(name, (*SUITES, *SUITES_1_3), "use a name that IANA gives, TLS_ECDHE_...")
            raise Refused(value.place, f"unrecognized cipher {name}", fix)
    if not any(name in SUITES for name in names):
        fix = "add one of TLS 1.2, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 for instance, or remove the key"
        raise Refused(value.place, '"cipher_suites" has none of TLS 1.2, and those of 1.3 are always on', fix)
    return names


def _read_curve(reading: Reading, key: Key, value: Value, target: object) -> object:
    names = STRINGS.read(reading, key, value, target)
    assert isinstance(names, tuple)
    for name in names:
        if name not in CURVES:
            fix = suggestion(name, CURVES, f"the curves are {', '.join(CURVES)}")
            raise Refused(value.place, f"unrecognized curve preference {name}", fix)
    if len(names) != 1:
        cause = f'"curve_preferences" has {len(names)} curves; OpenSSL can be told one, or chooses by itself'
        raise Refused(value.place, cause, "keep one, or remove the key")
    return names[0]


def _read_certificates(reading: Reading, key: Key, value: Value, target: object) -> object:
    pairs = value.data if isinstance(value.data, list) else [value]
    found = []
    for pair in pairs:
        found.append(_pair(pair, fill(reading, PAIR_TABLE, key, pair, PAIR, TlsOptions())))
    return tuple(found)


def _pair(value: Value, files: TlsOptions) -> tuple[str, str]:
    if files.cert_file and files.key_file:
        return files.cert_file, files.key_file
    lacking = "key_file" if files.cert_file else "cert_file"
    raise Refused(value.place, f"missing '{lacking}' in TLS configuration", f"write tls {{ {PAIR} }}")


_NO_OCSP = "the server does not request the status of certificates"
_NO_STORE = "certificate stores exist only on Windows"
PAIR_KEYS = (
    Key(
        "cert_file", PATH, "The PEM file with the certificate, and after it the certificates that signed it."
    ),
    Key("key_file", PATH, "The PEM file with the private key of the certificate."),
)
PAIR_TABLE = Table("tls.certs", PAIR_KEYS)
TLS = Table(
    "tls",
    (
        *PAIR_KEYS,
        Key(
            "certs",
            Kind("list of maps", _read_certificates, "{} | Sequence[{}]", PAIR_TABLE),
            "More certificates with their keys; the server name in the client's handshake selects one.",
        ),
        Key(
            "ca_file",
            PATH,
            "The file of authorities that may sign clients' certificates; empty: the machine's authorities.",
        ),
        Key("verify", BOOL, "Require a certificate from clients."),
        Key("verify_and_map", BOOL, "Require a certificate from clients; it also selects the user."),
        Key(
            "timeout",
            Kind("duration", _read_timeout, "Duration | float"),
            "Maximum time for the handshake; a number is in seconds.",
            check=AtLeast(1, "use a positive duration"),
        ),
        Key(
            "handshake_first",
            Kind("bool, auto or duration", _read_handshake_first, "bool | Duration"),
            "Begin TLS before INFO: `true`, `false`, or how long INFO waits for a handshake; `auto`: 50ms.",
            ("first", "immediate"),
            attrs=("handshake_first_ns",),
        ),
        Key(
            "connection_rate_limit",
            INT,
            "Maximum number of handshakes per second; 0: no limit.",
            check=Between(0, INT32_MAX, "use a number from 0"),
        ),
        Key(
            "pinned_certs",
            Kind("list of SHA-256", _read_pins, "str | Sequence[str]"),
            "SHA-256 digests, in hex, of the public keys that clients may have; empty: any key.",
        ),
        Key(
            "min_version",
            Kind('"1.2" or "1.3"', _read_version, 'Literal["1.2", "1.3"]'),
            "The oldest allowed version of TLS.",
        ),
        Key(
            "cipher_suites",
            Kind("list of cipher suites", _read_suites, "str | Sequence[str]"),
            "The allowed cipher suites of TLS 1.2, by their IANA names; empty: OpenSSL's defaults.",
        ),
        Key(
            "curve_preferences",
            Kind("curve", _read_curve, "str | Sequence[str]"),
            "The only curve for key exchange; empty: OpenSSL's defaults.",
            attrs=("curve",),
        ),
    ),
    (
        Unsupported(("insecure",), "the certificates of other servers are always verified"),
        Unsupported(
            ("verify_cert_and_check_known_urls",),
            "the certificates of connecting servers are not compared with `routes`",
        ),
        Unsupported(("allow_insecure_cipher_suites",), "insecure cipher suites are always off"),
        Unsupported(("ocsp_peer",), _NO_OCSP),
        Unsupported(("cert_store", "cert_match_by", "cert_match", "ca_certs_match"), _NO_STORE),
        Unsupported(("cert_match_skip_invalid",), _NO_STORE),
    ),
)


def _read_tls(reading: Reading, key: Key, value: Value, target: object) -> TlsOptions:
    assert isinstance(target, Options | ClusterOptions | WebSocketOptions)
    options = target.tls
    options.place = str(value.place)
    fill(reading, TLS, key, value, PAIR, options)
    if options.cert_file or options.key_file or not options.certs:
        _pair(value, options)
    options.verify = options.verify or options.verify_and_map or bool(options.pinned_certs)
    return options


# Checks the block of a port: it must name at least one certificate.
TLS_BLOCK = Kind("map", _read_tls, "{}", TLS)
