"""What an option is, and the requests that hold options."""
