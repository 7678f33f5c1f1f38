"""Random histories of edits of a file that declares streams: each must end equal to the file."""
