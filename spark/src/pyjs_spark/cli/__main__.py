"""`python -m pyjs_spark.cli`: the command `pyjs-pipeline`."""

import sys

from pyjs_spark.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
