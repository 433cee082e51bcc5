"""The command line: one module per group of verbs. A verb parses, calls one method of `App`, and prints.

Nothing imports this room, and no rule lives here.
"""
