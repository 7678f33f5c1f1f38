"""The NATS configuration language and the option tables."""
