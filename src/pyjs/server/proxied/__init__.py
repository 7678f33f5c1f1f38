"""Clients that come through a proxy: the header before everything else."""
