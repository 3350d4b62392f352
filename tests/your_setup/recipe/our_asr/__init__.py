"""A recipe as users have it."""
