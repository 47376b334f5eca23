"""Event streams in a storm: crashing servers, thousands of readers, and a check of their events.

`readers` and `transcripts` import no Windlass code.
"""
