"""pyjs-pipeline as an application for spark-submit, where the package is installed or came with --py-files."""

import sys

from pyjs_spark.cli.main import main

sys.exit(main())
