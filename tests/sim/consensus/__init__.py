"""The simulation of consensus between several nodes: networks, disks, crashes and power cuts."""
