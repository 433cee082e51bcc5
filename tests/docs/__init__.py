"""Checks of what the docs say against the code, and of the site that is made of them."""
