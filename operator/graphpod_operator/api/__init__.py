"""The InferenceService: its fields, names and quantities."""
