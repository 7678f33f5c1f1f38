"""One segment file: read, checked, indexed, written anew, removed."""
