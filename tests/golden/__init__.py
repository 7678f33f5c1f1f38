"""Store directories as a server left them, one plain and one encrypted, and what was in them."""
