"""Simulation of the bare engine: seeds decide about network, disks, crashes and clients; checks watch."""
