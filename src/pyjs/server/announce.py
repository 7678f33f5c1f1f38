"""The log lines that a starting server writes; operators and test suites search for them.

Texts, order and spaces are those of nats-server 2.15.1, since scripts parse them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs import __version__
from pyjs.base.gotext import size_text
from pyjs.node import API_LEVEL, PEER_VERSION

if TYPE_CHECKING:
    from pyjs.base.log import Log
    from pyjs.config.options import Options
    from pyjs.node import Node

PAYLOAD_SIZE_ADVISED = 8 * 1024 * 1024
RULE = "-" * 43
CIPHERS = {"chacha": "ChaCha20-Poly1305", "aes": "AES-GCM"}
BANNER = (
    r"  ___ _   _    _ ____",
    r" | _ \ |_| |_ | / ___|   JetStream",
    r" |  _/\__, | || \___ \   in Python",
    r" |_|  |___/ \__/|____/",
    "",
    "         https://docs.nats.io/jetstream",
    "",
)


def announce_start(log: Log, node: Node, options: Options) -> None:
    """Log the server's identity and configuration; for a worker, log only its name and id."""
    if options.worker is not None:
        log.info(f"Starting as {node.server_name}, ID {node.server_id}")
        return
    log.info("Starting nats-server")
    log.info(f"  Version:  {PEER_VERSION}")
    log.info(f"  Git:      [pyjs-server {__version__}]")
    log.info(f"  Name:     {node.server_name}")
    if options.jetstream.enabled:
        log.info(f"  Node:     {node_name(node.server_id)}")
    log.info(f"  ID:       {node.server_id}")
    if options.limits.max_payload > PAYLOAD_SIZE_ADVISED:
        text = f"Maximum payloads over {size_text(PAYLOAD_SIZE_ADVISED)} are generally discouraged"
        log.warn(f"{text} and could lead to poor performance")
    announce_configuration(log, options)


def announce_configuration(log: Log, options: Options) -> None:
    """Log the origin of the configuration, and warnings about it."""
    if options.has_plain_password():
        log.warn("Plaintext passwords detected, use nkeys or bcrypt")
    if options.config_path is not None:
        log.info(f"Using configuration file: {options.config_path} ({options.config_digest})")
    for text in options.warnings.repeated:
        log.warn(text)


def node_name(server_id: str) -> str:
    """Return JetStream's eight-character name of a server, derived from its id."""
    return server_id[1:9]


def announce_jetstream(log: Log, options: Options, effective: Options) -> None:
    """Log the settings of JetStream before the recovery.

    `effective` are the same options, with values in place of the defaults that depend on the machine.
    """
    jetstream = effective.jetstream
    if not options.jetstream.store_dir:
        log.warn("Temporary storage directory used, data could be lost on system reboot")
    for line in BANNER if options.worker is None or options.worker.number == 1 else ():
        log.info(line)
    log.info("---------------- JETSTREAM ----------------")
    log.info(f"  Strict:          {str(jetstream.strict).lower()}")
    log.info(f"  Max Memory:      {size_text(jetstream.max_memory)}")
    log.info(f"  Max Storage:     {size_text(jetstream.max_storage)}")
    log.info(f'  Store Directory: "{jetstream.store_dir}"')
    if jetstream.key:
        log.info(f"  Encryption:      {CIPHERS[jetstream.cipher]}")
    if jetstream.domain:
        log.info(f"  Domain:          {jetstream.domain}")
    log.info(f"  API Level:       {API_LEVEL}")
    log.info(RULE)
