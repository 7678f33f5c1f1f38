"""From bytes to columns and back, in plain Python; pyjs_spark_fast is the same, compiled."""
