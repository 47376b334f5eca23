"""Event streams: live hub, replay, feeds, SSE."""
