"""The process and the machine: memory, descriptors, clock, files, signals."""
