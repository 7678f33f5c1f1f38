"""The seams (time, chance, disk) and small tools. Imports no other package of the server."""
