"""Messages by sequence: file and memory stores."""
