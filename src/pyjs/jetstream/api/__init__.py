"""The $JS.API endpoints."""
