"""Store directories as a server left them, one plain and one encrypted, and their contents."""
