"""What users say, checked: options of reading and of writing."""
