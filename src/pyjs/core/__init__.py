"""Core NATS without sockets: sessions, accounts, delivery."""
