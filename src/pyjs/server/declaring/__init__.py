"""Application of declared assets in the server, and the command `pyjs-server plan`."""
