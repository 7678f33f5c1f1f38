"""The sink: writes each row to a stream exactly once."""
