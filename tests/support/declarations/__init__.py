"""Files generated from declared options: `python -m tests.support.declarations` writes them.

`made` returns each file as it must be; tests/style/test_declarations.py compares it with the file in the tree.
"""
