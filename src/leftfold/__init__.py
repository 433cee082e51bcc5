"""Leftfold: declare events and views once; every view stays true to the log."""
