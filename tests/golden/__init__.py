"""Store directories written by earlier versions of the format, and what was in them."""
