"""Options of streams and consumers, and the requests that set them."""
