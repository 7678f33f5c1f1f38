"""From bytes to columns and back, in plain Python; pyjs_spark_fast has the same in compiled form."""
