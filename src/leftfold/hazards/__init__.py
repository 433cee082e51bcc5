"""Hazards: rules that judge what is declared and what was observed, each with a code, numbers, the reason and a fix.

A rule is a pure function of `Facts`. It changes nothing and connects to nothing.
"""
