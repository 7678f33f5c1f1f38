"""Archives as tables of Delta and Iceberg."""
