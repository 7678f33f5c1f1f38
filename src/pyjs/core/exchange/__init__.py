"""What accounts share: imports of streams and services, applied to accounts while the server runs."""
