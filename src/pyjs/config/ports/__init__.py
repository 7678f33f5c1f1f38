"""The blocks of all ports except the client port."""
