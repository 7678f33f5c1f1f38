"""The decoders of pyjs-spark, compiled; used by that package in the same version (pyjs_spark/fast.py)."""

VERSION = "0.1.0"
