"""pyjs-pipeline as an application for spark-submit; the package is installed, or comes with --py-files."""

import sys

from pyjs_spark.cli.main import main

sys.exit(main())
