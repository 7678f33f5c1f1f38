"""The simulation of the consensus of several nodes: networks, disks, crashes and power cuts."""
