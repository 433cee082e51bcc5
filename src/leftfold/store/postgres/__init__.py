"""Postgres as an online store. Beside `consume`, the only room that imports psycopg."""
