"""Load and measurement against any OpenAI-compatible server."""
