"""The docs site: `python -m docs.website` makes it in `site/` from the Markdown of this repository and from the code.

Pages stay plain Markdown, as they are read in the repository. What the site needs beyond that (anchors of error codes,
tables of options, the API reference, rewritten links) is made in a temporary directory, never in `docs/`.
"""
