"""Redis as an online store. The only room that imports redis."""
