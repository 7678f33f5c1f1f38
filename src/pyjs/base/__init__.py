"""The three seams (Clock, Rng, Disk) and the small tools that every room uses."""
