"""The meaning of each reason for which a connection was closed, and the remedy."""

from __future__ import annotations

from pyjs.core.link import RELOADED

MEANINGS = {
    "Client Closed": "The client closed the connection.",
    RELOADED: "A reload removed the user, moved it to another account, or requires a new decision of the"
    " authorization service. The client may connect again if its user is still allowed.",
    "Read Error": "The connection broke: the client's process or machine ended, or the network between them.",
    "Write Error": "The connection broke: the client's process or machine ended, or the network between them.",
    "Stale Connection": "The client did not answer the last PINGs: its process hangs, or the network lost it.",
    "Slow Consumer (Pending Bytes)": "The client read more slowly than its messages came, until max_pending bytes"
    " waited for it. Read faster, subscribe to less, use a queue group or a pull consumer, or raise max_pending.",
    "Slow Consumer (Write Deadline)": "The client read nothing for write_deadline while output waited for it."
    " Its process hangs or reads too slowly.",
    "Maximum Connections Exceeded": "The server had max_connections clients. Close connections or raise the limit.",
    "Maximum Account Connections Exceeded": "The account had as many connections as its token or its limits allow.",
    "Maximum Subscriptions Exceeded": "The client or its account had as many subscriptions as its limit allows.",
    "Maximum Message Payload Exceeded": "The client sent a message larger than max_payload. Send smaller ones, or"
    " raise the limit.",
    "Maximum Control Line Exceeded": "The client sent a protocol line longer than max_control_line.",
    "Authentication Timeout": "The client did not log in within the time of the option authorization.timeout.",
    "Authentication Failure": "User, password, token, key or certificate of the client are not known or not allowed.",
    "Authentication Expired": "The client's credentials were valid until now. Give it new ones.",
    "Credentials Revoked": "The client's credentials were revoked.",
    "TLS Handshake Failure": "Client and server found no common TLS version or trusted no common certificate; the"
    " log names the cause.",
    "Parse Error": "The client sent bytes that are not the NATS protocol.",
    "Protocol Violation": "The client broke a rule of the NATS protocol; the log names it.",
    "Bad Client Protocol Version": "The client asked for a version of the protocol that does not exist.",
    "No Responders Requires Headers": "CONNECT asked for no_responders without headers, which it needs.",
    "Missing Account": "The account of the client's token is not known to this server.",
    "Proxy Not Trusted": "The client came through a proxy whose key the server does not trust.",
    "Proxy Required": "This user may only connect through a trusted proxy.",
    "Kicked": "An operator closed the connection with $SYS.REQ.SERVER.<id>.KICK.",
    "Server Shutdown": "The server stopped, or was in lame duck mode.",
    "Internal Error": "A fault of the server; the log has it. Please report it.",
}


def meaning(reason: str) -> str:
    """Return a sentence that explains why a connection was closed for `reason`; "" if there is no explanation."""
    return MEANINGS.get(reason, "")
