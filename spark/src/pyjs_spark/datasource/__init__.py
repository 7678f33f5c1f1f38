"""The format `jetstream`: the classes that Spark calls."""
