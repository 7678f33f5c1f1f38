"""The compiled decoders of pyjs-spark; that package uses them if they have its version (pyjs_spark/fast.py)."""

VERSION = "0.1.0"
