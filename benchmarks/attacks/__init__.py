"""The attacks of benchmarks/hostile.py: one module per family, and what runs, measures and judges them."""
