"""The format `jetstream`: what Spark calls."""
