"""The sink: writes each row into a stream exactly once."""
