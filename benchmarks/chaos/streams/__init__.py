"""Streams in a storm: servers that die, thousands of readers, and what they were told, checked.

`readers` and `transcripts` import no Windlass code.
"""
