"""The block `proxies`: the public keys of proxies through which clients may connect.

Source: texts of nats-server 2.15.1, tests/conformance/test_trusted_proxies.py.
"""

from __future__ import annotations

from pyjs.config.errors import Refused
from pyjs.config.kinds import STRING, fill, map_kind
from pyjs.config.options import ProxiesOptions, TrustedProxy
from pyjs.config.table import Key, Kind, Reading, Table, wrong_type
from pyjs.config.values import Value
from pyjs.wire.nkeys import any_public_key


def _check_key(reading: Reading, key: Key, value: Value, data: object) -> None:
    if any_public_key(str(data)) is None:
        cause = f'invalid proxy key "{data}"'
        raise Refused(
            value.place, cause, "use the public key of the proxy, N and 55 more letters for instance"
        )


PROXY = Table(
    "proxies.trusted",
    (Key("key", STRING, "The public key of a proxy.", ("public_key",), _check_key),),
)


def _read_trusted(reading: Reading, key: Key, value: Value, target: object) -> tuple[TrustedProxy, ...]:
    if not isinstance(value.data, list):
        raise wrong_type(key, value, "a list of proxies", "write trusted: [ {key: N...} ]")
    return tuple(_read_proxy(reading, key, element) for element in value.data)


def _read_proxy(reading: Reading, key: Key, value: Value) -> TrustedProxy:
    found = len(reading.problems)
    proxy = fill(reading, PROXY, key, value, "key: N...", TrustedProxy())
    if not proxy.key and len(reading.problems) == found:
        raise Refused(value.place, 'proxy trusted key "" is invalid', "add key: N...")
    return proxy


PROXIES = Table(
    "proxies",
    (
        Key(
            "trusted",
            Kind("list of maps", _read_trusted, "Sequence[{}]", PROXY),
            "The proxies through which clients may connect.",
        ),
    ),
)


PROXIES_BLOCK = map_kind(PROXIES, "trusted: [ {key: N...} ]", ProxiesOptions)
