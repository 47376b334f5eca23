"""Shared code of the SQL stores: named queries, migrations, row codecs.

No statement is built from strings.
"""
