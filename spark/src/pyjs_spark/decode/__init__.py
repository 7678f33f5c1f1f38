"""Decoders from bytes to columns and encoders back, in plain Python; pyjs_spark_fast has compiled versions."""
