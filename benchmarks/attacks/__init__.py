"""The attacks of benchmarks/hostile.py: one module per family, and modules that run, measure and evaluate them."""
