"""What a streamed token costs the front alone, fed over the wire by an engine without a model."""
