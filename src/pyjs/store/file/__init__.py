"""The store of file streams, and the parts that it consists of."""
