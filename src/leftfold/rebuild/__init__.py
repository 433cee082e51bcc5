"""Rebuilds a view beside the build that readers follow: cut history, compare the two, promote, roll back.

Reads history through `spark`; a rebuilt view itself runs in `run`.
"""
