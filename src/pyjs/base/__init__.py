"""The seams (time, randomness, disk) and small tools. Imports no other package of the server."""
