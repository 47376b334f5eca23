"""Shared code of the SQL stores: named queries, migrations, columns of jobs, row codecs.

Statements are complete when a store is imported: no value is ever part of their text.
"""
