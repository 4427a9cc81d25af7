"""What would happen? The same core under virtual time, on engines made of a cost model."""
