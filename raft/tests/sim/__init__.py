"""Simulation of the engine alone: seeds determine network, disks, crashes and clients; checks run throughout."""
