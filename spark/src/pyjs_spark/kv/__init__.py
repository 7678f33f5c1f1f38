"""Key-value buckets and object stores as rows."""
